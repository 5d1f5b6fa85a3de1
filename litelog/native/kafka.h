/* Kafka's batches, and the rows of their records. */

enum {
    BATCH_HEADER_BYTES = 61,
    FEWEST_RECORD_BYTES = 7,
    CODEC_BITS = 0x07,
    APPEND_TIME = 0x08,
    CONTROL = 0x20,
    DELETE_HORIZON = 0x40,
    MAGIC_AT = 16,
    MAGIC = 2,
    MOST_BATCH_BYTES = 32 << 20
};

/* The last time in milliseconds whose microseconds fit into 64 bits, as Python has it. */
static const int64_t most_milliseconds = INT64_MAX / 1000 - 1;

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

/* How far the rows are filled, what the next batch must be, and what is known of all batches so far. */
enum {
    ROWS,
    VALUE_BYTES,
    KEY_BYTES,
    KEYS,
    NULLS,
    ROWS_WITH_HEADERS,
    TAKEN_BATCHES, /* those that have their rows; negative if none are wanted */
    IS_FULL,
    IS_UNSURE, /* whether one of the batches is not plainly one that may follow; then the rest means nothing */
    NEXT_OFFSET,
    LAST_OFFSET, /* the highest that may be */
    NEWEST_EPOCH,
    TOTAL_RECORDS, /* a batch without records counts as one */
    EARLIEST,      /* of the batches' highest times, of those with records */
    LATEST,
    OLDER_RECORDS /* whether there may be older records */
};

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

/* Lets the processor fetch the bytes `ahead` of a place: the next batch, while the records of this one are read. It has
   to wait for the bytes of a large one otherwise, when it computes the checksum. */
static inline void fetch_early(bytes at, int64_t ahead)
{
    uintptr_t place = (uintptr_t)at + (uintptr_t)ahead;

    __builtin_prefetch((const void *)place);
    __builtin_prefetch((const void *)(place + 64));
}

enum { LARGE_BYTES = 1 << 14 };

/* What the records of a batch have in common. */
struct batch {
    bytes data;
    int64_t base, last, first_time, one_time, is_appended, takes_short;
};

static int open_batch(bytes data, bytes head, struct batch *batch)
{
    batch->data = data;
    batch->base = field(head, 8, 1);
    batch->last = field(head + 23, 4, 1);
    batch->is_appended = field(head + 21, 2, 1) & APPEND_TIME;
    batch->one_time = field(head + 35, 8, 1);
    batch->first_time = batch->is_appended ? batch->one_time : field(head + 27, 8, 1);
    batch->takes_short = batch->first_time >= MOST_SHORT_TIME - most_milliseconds &&
                         batch->first_time <= most_milliseconds - MOST_SHORT_TIME;
    return batch->base >= 0 && batch->last <= INT32_MAX && batch->base <= INT64_MAX - batch->last;
}

/* The time of a record in microseconds; INT64_MIN if it does not fit. */
static inline int64_t time_of(const struct batch *batch, const struct record *found)
{
    int64_t time = batch->first_time;

    if (!batch->is_appended && __builtin_add_overflow(time, found->time, &time))
        return INT64_MIN;
    return time < -most_milliseconds || time > most_milliseconds ? INT64_MIN : 1000 * time;
}

/* Writes the rows of a batch's records. Returns whether they fill it, and are plainly right. */
static int put_records(bytes data, bytes head, bytes end, const struct rows *rows, int64_t *filled)
{
    int64_t count = field(head + 57, 4, 1), row = filled[ROWS], nulls = 0, value_bytes = filled[VALUE_BYTES], before = -1;
    int64_t *sequences = rows->columns, *times = sequences + rows->capacity, *starts = times + rows->capacity;
    int64_t *lengths = starts + rows->capacity, *places = lengths + rows->capacity;
    int64_t ahead = end - head >= LARGE_BYTES ? end - head : 0;
    bytes at = head + BATCH_HEADER_BYTES, next;
    struct batch batch;

    if (!open_batch(data, head, &batch))
        return 0;
    for (int64_t stop = row + count; row < stop; row++, at = next) {
        struct record found;

        fetch_early(at, ahead);
        next = batch.takes_short && !filled[KEYS] ? take_short_record(at, end, &found) : 0;
        if (next) {
            times[row] = 1000 * (batch.first_time + (batch.is_appended ? 0 : found.time));
        } else {
            next = take_record(at, end, &found);
            if (!next || (times[row] = time_of(&batch, &found)) == INT64_MIN)
                return 0;
            if ((filled[KEYS] || found.key_length >= 0) && !put_key(&found, rows, row, filled))
                return 0;
            if (found.header_count)
                put_headers(data, &found, rows, row, filled);
            nulls += found.value_length < 0;
        }
        if (found.offset <= before || found.offset > batch.last)
            return 0;
        before = found.offset;
        sequences[row] = batch.base + found.offset;
        starts[row] = value_bytes;
        lengths[row] = found.value_length;
        places[row] = found.value - data;
        if (!put_entry(rows->values, rows->value_room, &value_bytes, found.value, found.value_length))
            return 0;
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
 * The places from `begin` to `end`, exclusive, at which a batch may begin, by its magic, length, offset and counts.
 *
 * Writes up to `capacity` of them, and returns how many.
 */
int64_t litelog_find_headers(bytes data, int64_t size, int64_t begin, int64_t end, int64_t *places, int64_t capacity)
{
    int64_t count = 0;

    if (begin < 0 || end > size - BATCH_HEADER_BYTES + 1)
        return 0;
    while (begin < end && count < capacity) {
        bytes magic = memchr(data + begin + MAGIC_AT, MAGIC, (size_t)(end - begin)), at;
        int64_t length, last, records;

        if (!magic)
            break;
        at = magic - MAGIC_AT;
        begin = at - data + 1;
        length = field(at + 8, -4, 1);
        last = field(at + 23, -4, 1);
        records = field(at + 57, -4, 1);
        if (*at < 0x80 && length >= BATCH_HEADER_BYTES - 12 && length + 12 <= data + size - at && last >= 0 &&
            records >= 0 && records <= last + 1)
            places[count++] = at - data;
    }
    return count;
}

/* Adds a batch to what is known of all of them. Returns whether it is plainly one that may follow those before. */
static int add_batch(bytes head, int64_t total, int64_t *filled)
{
    int64_t base = field(head, 8, 1), delta = field(head + 23, -4, 1), epoch = field(head + 12, -4, 1);
    int64_t records = field(head + 57, -4, 1), time = field(head + 35, 8, 1), attributes = field(head + 21, 2, 1);

    if (head[16] != MAGIC || total > MOST_BATCH_BYTES || base < filled[NEXT_OFFSET] || base > filled[LAST_OFFSET])
        return 0;
    if (delta < 0 || delta > filled[LAST_OFFSET] - base || records < 0 || records > delta + 1)
        return 0;
    if ((epoch < filled[NEWEST_EPOCH] && epoch != -1) || time < -most_milliseconds || time > most_milliseconds)
        return 0;
    filled[NEXT_OFFSET] = base + delta + 1;
    filled[NEWEST_EPOCH] = epoch > filled[NEWEST_EPOCH] ? epoch : filled[NEWEST_EPOCH];
    filled[TOTAL_RECORDS] += records ? records : 1;
    if (records) {
        filled[EARLIEST] = time < filled[EARLIEST] ? time : filled[EARLIEST];
        filled[LATEST] = time > filled[LATEST] ? time : filled[LATEST];
        filled[OLDER_RECORDS] |= !(attributes & APPEND_TIME) && (records != 1 || attributes & DELETE_HORIZON);
    }
    return 1;
}

/*
 * Kafka's batches from `start` on, as frames of a layout as in litelog_take_frames, and the rows of their records.
 *
 * Writes where batches begin, and where the last one ends; their attributes and producer ids; and the number of rows up
 * to each one's end. Rows are written up to the first batch that is compressed, or that is not plainly right; control
 * batches have none. Rows are eleven columns of `row_capacity` numbers each, in the order of the enumeration above.
 * Values lie back to back at the start of `content`, and keys from `value_room` on. `filled` says how much of all that
 * is filled, how many batches have their rows, and what is known of all batches. Stops before a batch for which there is
 * no room, or not for all its records, and says so. Returns the number of batches; -1 for a layout that cannot be.
 */
int64_t litelog_take_batches(bytes data, int64_t size, int64_t start, const int64_t *layout, int64_t *bounds,
                             int64_t *attributes, int64_t *producers, int64_t *rows_after, int64_t capacity,
                             int64_t *columns, int64_t row_capacity, uint8_t *content, int64_t value_room,
                             int64_t key_room, int64_t *filled)
{
    const struct rows rows = {columns, row_capacity, content, content + value_room, value_room, key_room, value_room};
    int64_t count = 0, position = start;

    if (start < 0 || start > size || capacity < 0 || row_capacity < 0 || value_room < 0 || key_room < 0)
        return -1;
    if (!is_layout(layout) || layout[FEWEST] < BATCH_HEADER_BYTES)
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
        if (!filled[IS_UNSURE])
            filled[IS_UNSURE] = !add_batch(head, total, filled);
        attributes[count] = field(head + 21, -2, 1);
        producers[count] = field(head + 43, 8, 1);
        rows_after[count] = filled[ROWS];
        position += total;
        bounds[++count] = position;
    }
    if (count == capacity && size - position >= layout[FEWEST])
        filled[IS_FULL] = 1;
    return count;
}
