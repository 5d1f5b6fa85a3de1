/* The records in Kafka's batches. */

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

/* A varint of one or two bytes, where two bytes can be read; a longer one sets bit 15 of `longer`. */
static inline bytes take_short(bytes at, uint32_t *value, uint32_t *longer)
{
    uint16_t two;

    memcpy(&two, at, 2);
    if (!(two & 0x80)) {
        *value = two & 0x7F;
        return at + 1;
    }
    *value = (two & 0x7F) | (two >> 1 & 0x3F80);
    *longer |= two;
    return at + 2;
}

/* The most bytes before the value of a short record, and one more. */
enum { SHORT_BYTES = 11, MOST_SHORT_TIME = 1 << 13 };

/* Reads a record as most are: with numbers of one or two bytes, and without a key and headers. Returns where it ends;
   null if it is not one, or not sure. */
static inline __attribute__((always_inline)) bytes take_short_record(bytes at, bytes end, struct record *found)
{
    uint32_t length, time, offset, value, others, longer = 0;
    bytes next, stop;

    if (end - at < SHORT_BYTES)
        return 0;
    next = take_short(at, &length, &longer);
    if (length >> 1 > end - next)
        return 0;
    stop = next + (length >> 1);
    others = *next++;
    next = take_short(next, &time, &longer);
    next = take_short(next, &offset, &longer);
    others |= *next++ ^ 1;
    next = take_short(next, &value, &longer);
    if (others | (longer & 0x8000) | ((length | offset | value) & 1) || stop - next - 1 != value >> 1 || stop[-1])
        return 0;
    found->time = (int64_t)(time >> 1) ^ -(int64_t)(time & 1);
    found->offset = offset >> 1;
    found->value = next;
    found->value_length = value >> 1;
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
