/* NetLog's messages, and the messages in a set. */

enum { MESSAGE_BYTES = 9, LAST_CODEC = 3, PLAIN = 0, SET = 1 };

/* How much is filled: records, bytes of their values, plain messages to look at, messages whose records are there, sets
   among them. */
enum { RECORDS, RECORD_BYTES, SUSPECTS, READ_MESSAGES, SETS };

/* The place after the message at `at`, whatever its checksum says; null if it is not whole. */
static inline bytes skip_message(bytes at, bytes end)
{
    int64_t length;

    if (end - at < MESSAGE_BYTES)
        return 0;
    length = number(at + 5, 1);
    return length > end - at - MESSAGE_BYTES ? 0 : at + MESSAGE_BYTES + length;
}

/* How many messages fill the bytes exactly; 0 if none do. Says whether all of them are empty. */
static inline int64_t count_messages(bytes at, bytes end, int *are_empty)
{
    int64_t count = 0;

    *are_empty = 1;
    for (; at < end; count++) {
        bytes next = skip_message(at, end);

        if (!next)
            return 0;
        *are_empty &= next - at == MESSAGE_BYTES;
        at = next;
    }
    return count;
}

/* Whether the payload of a plain message is a whole set of several messages with the right checksums, not all of which
   are empty; or may be one in gzip. */
static int may_be_set(bytes at, bytes end)
{
    int are_empty;

    if (end - at >= 2 && at[0] == 0x1F && at[1] == 0x8B)
        return 1;
    if (end - at < 2 * MESSAGE_BYTES || *at > LAST_CODEC || count_messages(at, end, &are_empty) < 2 || are_empty)
        return 0;
    for (bytes next; at < end; at = next) {
        next = skip_message(at, end);
        if (checksum(&crc32, at + MESSAGE_BYTES, next - at - MESSAGE_BYTES) != number(at + 1, 1))
            return 0;
    }
    return 1;
}

/* Where records are written: a column of places and one of lengths, and the values themselves. */
struct records {
    int64_t *starts, *lengths, capacity;
    uint8_t *values;
    int64_t room, copies;
};

/* Adds the record at [at, end). Returns whether there was room. */
static inline int put_value(const struct records *records, bytes at, bytes end, int64_t *filled)
{
    int64_t slot = filled[RECORDS], length = end - at;

    filled[RECORDS]++;
    if (!records->copies)
        return 1;
    if (slot >= records->capacity || length > records->room - filled[RECORD_BYTES])
        return 0;
    copy(records->values + filled[RECORD_BYTES], at, length);
    records->starts[slot] = filled[RECORD_BYTES];
    records->lengths[slot] = length;
    filled[RECORD_BYTES] += length;
    return 1;
}

/* Adds the records of a message. Returns whether they are all there: those of compressed sets are left to Python. */
static int read_message(bytes at, bytes end, const struct records *records, int64_t *filled)
{
    int are_empty;

    if (*at == PLAIN)
        return put_value(records, at + MESSAGE_BYTES, end, filled);
    if (*at != SET || !count_messages(at + MESSAGE_BYTES, end, &are_empty))
        return 0;
    for (at += MESSAGE_BYTES; at < end;) {
        bytes next = skip_message(at, end);

        if (!put_value(records, at + MESSAGE_BYTES, next, filled))
            return 0;
        at = next;
    }
    return 1;
}

/*
 * The places from `start` on at which a message may begin that is there as a whole, and is not empty.
 *
 * Writes up to `capacity` of them, and the length of each one's payload, which is at most `most`. Returns how many.
 */
int64_t litelog_find_message_heads(bytes data, int64_t size, int64_t start, int64_t most, int64_t *places,
                                   int64_t *lengths, int64_t capacity)
{
    int64_t count = 0;

    for (; start >= 0 && start < size - MESSAGE_BYTES && count < capacity; start++) {
        int64_t length = number(data + start + 5, 1);

        if (data[start] > LAST_CODEC || !length || length > most || length > size - start - MESSAGE_BYTES)
            continue;
        places[count] = start;
        lengths[count++] = length;
    }
    return count;
}

/*
 * NetLog's messages from `start` on, as frames of a layout as in litelog_take_frames, up to the first with an unknown
 * codec.
 *
 * Writes where messages begin, and where the last one ends; how many records there are up to each one's end; and the
 * numbers of the plain messages whose payload may be a set. If `copies` is not 0, copies the records back to back into
 * `values`, and writes two columns of `record_capacity` numbers: where each begins there, and its length. Records are
 * read up to the first message that is a compressed set, or a malformed one. `filled` says how much of all that there
 * is. Returns the number of messages; -1 for a layout that cannot be.
 */
int64_t litelog_take_messages(bytes data, int64_t size, int64_t start, const int64_t *layout, int64_t *bounds,
                              int64_t *records_after, int64_t *suspects, int64_t capacity, int64_t *columns,
                              int64_t record_capacity, uint8_t *values, int64_t room, int64_t copies, int64_t *filled)
{
    const struct records records = {columns, columns + record_capacity, record_capacity, values, room, copies};
    int64_t count = 0, position = start;

    if (start < 0 || start > size || capacity < 0 || record_capacity < 0 || room < 0)
        return -1;
    if (!is_layout(layout) || layout[FEWEST] < MESSAGE_BYTES)
        return -1;
    bounds[0] = start;
    while (count < capacity && size - position >= layout[FEWEST] && data[position] <= LAST_CODEC) {
        bytes at = data + position;
        int64_t total = take_frame(at, size - position, layout);

        if (!total)
            break;
        if (filled[READ_MESSAGES] == count)
            filled[READ_MESSAGES] += read_message(at, at + total, &records, filled);
        filled[SETS] += *at != PLAIN;
        if (*at == PLAIN && may_be_set(at + MESSAGE_BYTES, at + total))
            suspects[filled[SUSPECTS]++] = count;
        records_after[count] = filled[RECORDS];
        position += total;
        bounds[++count] = position;
    }
    return count;
}
