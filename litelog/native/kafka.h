/* Kafka's batches, and the records in them. */

/* A varint of three bytes or more before `end`, of at most `longest` bytes; null if there is none. */
static __attribute__((noinline)) bytes take_long_varint(bytes at, bytes end, int longest, uint64_t *value)
{
    uint64_t found = 0;

    for (int shift = 0; at < end && longest; shift += 7, longest--) {
        uint64_t byte = *at++;

        found |= (byte & 0x7F) << shift;
        if (byte < 0x80) {
            *value = found;
            return at;
        }
    }
    return 0;
}

static inline bytes take_varint(bytes at, bytes end, int longest, uint64_t *value)
{
    if (at < end && *at < 0x80) {
        *value = *at;
        return at + 1;
    }
    if (end - at >= 2 && at[1] < 0x80) {
        *value = (at[0] & 0x7F) | (uint64_t)at[1] << 7;
        return at + 2;
    }
    return take_long_varint(at, end, longest, value);
}

/* A length of at most 31 bits, or -1, and the place after it. */
static inline bytes take_length(bytes at, bytes end, int64_t *length)
{
    uint64_t raw;

    at = take_varint(at, end, 5, &raw);
    if (!at || raw >> 32 || (raw & 1 && raw != 1))
        return 0;
    *length = raw == 1 ? -1 : (int64_t)(raw >> 1);
    return at;
}

/* Takes an entry: a length, and as many bytes; null if it does not lie before `end`. */
static inline bytes take_entry(bytes at, bytes end, bytes *start, int64_t *length)
{
    at = take_length(at, end, length);
    if (!at || *length > end - at)
        return 0;
    *start = at;
    return *length > 0 ? at + *length : at;
}

struct record {
    bytes end, key, value, headers;
    int64_t time, offset, key_length, value_length, header_count; /* a length is -1 for null */
};

/* Reads the record at `at`; returns where it ends, null if it is not sure. */
static inline __attribute__((always_inline)) bytes take_record(bytes at, bytes end, struct record *found)
{
    int64_t length;
    uint64_t time, offset, headers;
    bytes stop;

    at = take_length(at, end, &length);
    if (!at || length < 1 || length > end - at || *at)
        return 0;
    stop = at + length;
    at = take_varint(at + 1, stop, 10, &time);
    if (!at)
        return 0;
    at = take_varint(at, stop, 5, &offset);
    if (!at || offset & 1 || offset >> 32)
        return 0;
    at = take_entry(at, stop, &found->key, &found->key_length);
    if (!at)
        return 0;
    at = take_entry(at, stop, &found->value, &found->value_length);
    if (!at)
        return 0;
    at = take_varint(at, stop, 5, &headers);
    if (!at || headers & 1 || headers > (uint64_t)(stop - at) || (!headers && at != stop))
        return 0;
    found->end = stop;
    found->time = (int64_t)(time >> 1 ^ -(time & 1));
    found->offset = (int64_t)(offset >> 1);
    found->headers = at;
    found->header_count = (int64_t)(headers >> 1);
    return stop;
}

/*
 * The records of Kafka's batches, which lie from begins[i] to ends[i], counts[i] of them.
 *
 * Writes ten columns of `total` numbers each, one column after the other, in the order of the enumeration below.
 * Returns the number of records if each batch holds exactly its records; otherwise -1.
 */
enum { STARTS, ENDS, TIMES, OFFSETS, KEY_STARTS, KEY_LENGTHS, VALUE_STARTS, VALUE_LENGTHS, HEADER_STARTS, HEADER_COUNTS };

int64_t litelog_find_records(bytes data, int64_t size, const int64_t *begins, const int64_t *ends,
                             const int64_t *counts, int64_t batches, int64_t *columns, int64_t total)
{
    int64_t *row[10], slot = 0;

    for (int column = 0; column < 10; column++)
        row[column] = columns + column * total;
    for (int64_t batch = 0; batch < batches; batch++) {
        if (begins[batch] < 0 || begins[batch] > ends[batch] || ends[batch] > size)
            return -1;
        if (counts[batch] < 0 || counts[batch] > total - slot)
            return -1;
        bytes at = data + begins[batch], end = data + ends[batch];

        for (int64_t last = slot + counts[batch]; slot < last; slot++) {
            struct record found;

            row[STARTS][slot] = at - data;
            at = take_record(at, end, &found);
            if (!at)
                return -1;
            row[ENDS][slot] = at - data;
            row[TIMES][slot] = found.time;
            row[OFFSETS][slot] = found.offset;
            row[KEY_STARTS][slot] = found.key - data;
            row[KEY_LENGTHS][slot] = found.key_length;
            row[VALUE_STARTS][slot] = found.value - data;
            row[VALUE_LENGTHS][slot] = found.value_length;
            row[HEADER_STARTS][slot] = found.headers - data;
            row[HEADER_COUNTS][slot] = found.header_count;
        }
        if (at != end)
            return -1;
    }
    return slot == total ? slot : -1;
}

enum {
    BATCH_HEADER_BYTES = 61,
    FEWEST_RECORD_BYTES = 7,
    CODEC_BITS = 0x07,
    APPEND_TIME = 0x08,
    CONTROL = 0x20
};

/* The last time in milliseconds that fits into microseconds of 64 bits. */
static const int64_t most_milliseconds = INT64_MAX / 1000;

/* The rows of records, in columns of `capacity` numbers, and the bytes of their values and keys. */
enum {
    ROW_SEQUENCE,
    ROW_TIME,
    ROW_VALUE_START,
    ROW_VALUE_LENGTH,
    ROW_PLACE, /* of the value in the piece */
    ROW_KEY_START,
    ROW_KEY_LENGTH,
    KEYED_ROW, /* from here on one number for each record with headers: its row, and where its headers lie */
    KEYED_START,
    KEYED_END,
    KEYED_COUNT
};

/* How far the rows are filled. */
enum { ROWS, VALUE_BYTES, KEY_BYTES, KEYS, NULLS, ROWS_WITH_HEADERS, TAKEN_BATCHES, IS_FULL };

struct rows {
    int64_t *columns, capacity;
    uint8_t *values, *keys;
    int64_t value_room, key_room, keys_at; /* the place of `keys`, as rows state it */
};

/* Copies an entry after those before it. Returns whether there was room. */
static inline int put_entry(uint8_t *into, int64_t room, int64_t *filled, bytes entry, int64_t length)
{
    if (length <= 0)
        return 1;
    if (length > room - *filled)
        return 0;
    copy(into + *filled, entry, length);
    *filled += length;
    return 1;
}

/* Notes where the headers of a record lie, whose number is `row`. */
static __attribute__((noinline)) void put_headers(bytes data, const struct record *found, const struct rows *rows,
                                                  int64_t row, int64_t *filled)
{
    int64_t *keyed = rows->columns + KEYED_ROW * rows->capacity + filled[ROWS_WITH_HEADERS]++;

    keyed[0] = row;
    keyed[rows->capacity] = found->headers - data;
    keyed[2 * rows->capacity] = found->end - data;
    keyed[3 * rows->capacity] = found->header_count;
}

/* Writes where keys lie, from the first record that has one on; those before it have none. */
static __attribute__((noinline)) int put_key(const struct record *found, const struct rows *rows, int64_t row,
                                             int64_t *filled)
{
    int64_t *starts = rows->columns + ROW_KEY_START * rows->capacity, *lengths = starts + rows->capacity;

    if (!filled[KEYS])
        for (int64_t each = 0; each < row; each++) {
            starts[each] = rows->keys_at;
            lengths[each] = -1;
        }
    filled[KEYS] = 1;
    starts[row] = rows->keys_at + filled[KEY_BYTES];
    lengths[row] = found->key_length;
    return put_entry(rows->keys, rows->key_room, &filled[KEY_BYTES], found->key, found->key_length);
}

/* Writes the rows of a batch's records. Returns whether they fill it, and are plainly right. */
static int put_records(bytes data, bytes head, bytes end, const struct rows *rows, int64_t *filled)
{
    int64_t count = field(head + 57, 4, 1), base = field(head, 8, 1), last = field(head + 23, 4, 1), before = -1;
    int64_t first_time = field(head + 27, 8, 1), one_time = field(head + 35, 8, 1);
    int64_t is_appended = field(head + 21, 2, 1) & APPEND_TIME;
    int64_t row = filled[ROWS], nulls = 0, value_bytes = filled[VALUE_BYTES], *sequences = rows->columns;
    int64_t *times = sequences + rows->capacity, *starts = times + rows->capacity, *lengths = starts + rows->capacity;
    int64_t *places = lengths + rows->capacity;
    bytes at = head + BATCH_HEADER_BYTES;

    if (base < 0 || last > INT32_MAX || base > INT64_MAX - last)
        return 0;
    for (int64_t stop = row + count; row < stop; row++) {
        struct record found;
        int64_t time = one_time;

        at = take_record(at, end, &found);
        if (!at || found.offset <= before || found.offset > last)
            return 0;
        if (!is_appended && __builtin_add_overflow(first_time, found.time, &time))
            return 0;
        if (time < -most_milliseconds || time > most_milliseconds)
            return 0;
        before = found.offset;
        sequences[row] = base + found.offset;
        times[row] = 1000 * time;
        starts[row] = value_bytes;
        lengths[row] = found.value_length;
        places[row] = found.value - data;
        nulls += found.value_length < 0;
        if (!put_entry(rows->values, rows->value_room, &value_bytes, found.value, found.value_length))
            return 0;
        if ((filled[KEYS] || found.key_length >= 0) && !put_key(&found, rows, row, filled))
            return 0;
        if (found.header_count)
            put_headers(data, &found, rows, row, filled);
    }
    filled[ROWS] = row;
    filled[VALUE_BYTES] = value_bytes;
    filled[NULLS] += nulls;
    return at == end;
}

enum { TAKEN, LEFT, FULL };

/* Writes the rows of a whole batch, unless it is one of those that are left to Python. */
static int take_batch(bytes data, bytes head, bytes end, const struct rows *rows, int64_t *filled)
{
    int64_t attributes = field(head + 21, 2, 1), count = field(head + 57, 4, 1), before[TAKEN_BATCHES];

    if (attributes & CODEC_BITS || count > (end - head - BATCH_HEADER_BYTES) / FEWEST_RECORD_BYTES)
        return LEFT;
    if (attributes & CONTROL || !count)
        return TAKEN;
    if (count > rows->capacity - filled[ROWS])
        return FULL;
    memcpy(before, filled, sizeof before);
    if (put_records(data, head, end, rows, filled))
        return TAKEN;
    memcpy(filled, before, sizeof before);
    return LEFT;
}

/*
 * Kafka's batches from `start` on, as frames of a layout with fields as in litelog_take_frames, and the rows of their
 * records.
 *
 * Writes where batches begin, and where the last one ends; the fields; and the number of rows up to each one's end.
 * Rows are written up to the first batch that is compressed, or that is not plainly right; control batches have none.
 * Rows are eleven columns of `row_capacity` numbers each, in the order of the enumeration above. Values lie back to back
 * at the start of `content`, and keys from `value_room` on. `filled` says how much of all that is filled, and how many
 * batches have their rows. Stops before a batch for which there is no room, or not for all its records, and says so.
 * Returns the number of batches; -1 for a layout that cannot be.
 */
int64_t litelog_take_batches(bytes data, int64_t size, int64_t start, const int64_t *layout,
                             const int64_t *fields, int64_t field_count, int64_t *bounds, int64_t *numbers,
                             int64_t *rows_after, int64_t capacity, int64_t *columns, int64_t row_capacity,
                             uint8_t *content, int64_t value_room, int64_t key_room,
                             int64_t *filled)
{
    const struct rows rows = {columns, row_capacity, content, content + value_room, value_room, key_room, value_room};
    int64_t count = 0, position = start;

    if (start < 0 || start > size || capacity < 0 || row_capacity < 0 || value_room < 0 || key_room < 0)
        return -1;
    if (!is_layout(layout) || layout[FEWEST] < BATCH_HEADER_BYTES || !are_fields(fields, field_count, layout[FEWEST]))
        return -1;
    bounds[0] = start;
    while (count < capacity && size - position >= layout[FEWEST]) {
        bytes head = data + position;
        int64_t total = take_frame(head, size - position, layout);

        if (!total)
            break;
        if (filled[TAKEN_BATCHES] == count) {
            int what = take_batch(data, head, head + total, &rows, filled);

            filled[IS_FULL] = what == FULL;
            if (what == FULL)
                break;
            filled[TAKEN_BATCHES] += what == TAKEN;
        }
        put_fields(head, fields, field_count, layout[IS_BIG], numbers + count, capacity);
        rows_after[count] = filled[ROWS];
        position += total;
        bounds[++count] = position;
    }
    if (count == capacity && size - position >= layout[FEWEST])
        filled[IS_FULL] = 1;
    return count;
}
