/* Frames that state their length and their checksum: the commits of most formats. */

/* What describes frames: see litelog_take_frames. */
enum { LENGTH_AT, IS_BIG, OTHER_BYTES, FEWEST, MOST, CHECKSUM_KIND, CHECKED_FROM, CHECKSUM_AT, VALUE_AT, AFTER_VALUE };

static inline uint32_t number(bytes at, int64_t is_big)
{
    uint32_t value;

    memcpy(&value, at, 4);
    return is_big ? __builtin_bswap32(value) : value;
}

/* A number of 1, 2, 4 or 8 bytes; with a sign if the width is negative. Each width has a load of its own: bytes that are
   stored one by one and loaded as a whole wait for the store. */
static inline int64_t field(bytes at, int64_t width, int64_t is_big)
{
    uint64_t eight;
    uint32_t four;
    uint16_t two;

    switch (width) {
    case 8:
    case -8:
        memcpy(&eight, at, 8);
        return (int64_t)(is_big ? __builtin_bswap64(eight) : eight);
    case 4:
    case -4:
        four = number(at, is_big);
        return width < 0 ? (int32_t)four : (int64_t)four;
    case 2:
    case -2:
        memcpy(&two, at, 2);
        two = is_big ? __builtin_bswap16(two) : two;
        return width < 0 ? (int16_t)two : (int64_t)two;
    default:
        return width < 0 ? (int8_t)*at : (int64_t)*at;
    }
}

/* Whether each field, a place and a width, lies in the fewest bytes of a frame. */
static int are_fields(const int64_t *fields, int64_t count, int64_t fewest)
{
    for (int64_t each = 0; each < count; each++) {
        int64_t place = fields[2 * each], width = fields[2 * each + 1];

        if (width < -8 || width > 8)
            return 0;
        width = width < 0 ? -width : width;
        if (!width || width & (width - 1) || place < 0 || place > fewest - width)
            return 0;
    }
    return count >= 0;
}

/* Writes the fields of a frame, each into its column of `capacity` numbers. */
static inline void put_fields(bytes at, const int64_t *fields, int64_t count, int64_t is_big, int64_t *columns,
                              int64_t capacity)
{
    for (int64_t each = 0; each < count; each++)
        columns[each * capacity] = field(at + fields[2 * each], fields[2 * each + 1], is_big);
}

static int is_layout(const int64_t *layout)
{
    int64_t fewest = layout[FEWEST], from = layout[CHECKED_FROM], stated_at = layout[CHECKSUM_AT];

    if (layout[LENGTH_AT] < 0 || layout[OTHER_BYTES] < 0 || from < 0 || layout[VALUE_AT] < 0 || layout[AFTER_VALUE] < 0)
        return 0;
    if (fewest < 4 || layout[LENGTH_AT] > fewest - 4 || layout[OTHER_BYTES] > fewest || from > fewest)
        return 0;
    if (layout[VALUE_AT] > fewest || layout[AFTER_VALUE] > fewest - layout[VALUE_AT] || stated_at > fewest - 4)
        return 0;
    return stated_at >= 0 || (stated_at <= -4 && fewest + stated_at >= from);
}

/* The size of the frame at `at` if it is whole within `left` bytes, at least `fewest`, and its checksum is right; 0
   otherwise. */
static inline int64_t take_frame(bytes at, int64_t left, const int64_t *layout)
{
    int64_t is_big = layout[IS_BIG], stated_at = layout[CHECKSUM_AT], from = layout[CHECKED_FROM];
    int64_t total = layout[OTHER_BYTES] + (int64_t)number(at + layout[LENGTH_AT], is_big);

    if (total < layout[FEWEST] || total > layout[MOST] || total > left)
        return 0;
    if (layout[CHECKSUM_KIND]) {
        const struct crc *crc = layout[CHECKSUM_KIND] == 1 ? &crc32c : &crc32;
        int64_t end = stated_at < 0 ? total + stated_at : total;

        if (checksum(crc, at + from, end - from) != number(at + (stated_at < 0 ? end : stated_at), is_big))
            return 0;
    }
    return total;
}

/*
 * Frames that state their length and their checksum.
 *
 * layout: place of the length; whether numbers are big-endian; bytes that the length does not count; fewest and most
 * bytes of a frame; checksum (0 none, 1 CRC-32C, 2 CRC-32); place from which on it is computed; place of the checksum,
 * negative if counted from the frame's end, where the bytes that it covers end, too; where a frame's value begins; and
 * the number of bytes after it.
 * fields: place and width in bytes of each number that is read from every frame, a negative width for one with a sign;
 * they lie in its fewest bytes.
 *
 * Writes where frames begin from `start` on, and where the last one ends: at most capacity + 1 places. Writes a column
 * of `capacity` numbers for each field. If `copies` is not 0, copies the values back to back into `values`, and writes two more columns: where each begins
 * there, and its length. Returns the
 * number of frames; -1 for a layout that cannot be.
 */
int64_t litelog_take_frames(bytes data, int64_t size, int64_t start, const int64_t *layout, const int64_t *fields,
                            int64_t field_count, int64_t *bounds, int64_t *columns, int64_t capacity, uint8_t *values,
                            int64_t room, int64_t copies)
{
    int64_t count = 0, position = start, copied = 0, *starts = columns + field_count * capacity;

    if (start < 0 || start > size || capacity < 0 || !is_layout(layout))
        return -1;
    if (!are_fields(fields, field_count, layout[FEWEST]))
        return -1;
    bounds[0] = start;
    while (count < capacity && size - position >= layout[FEWEST]) {
        bytes at = data + position;
        int64_t total = take_frame(at, size - position, layout);

        if (!total)
            break;
        if (copies) {
            int64_t length = total - layout[VALUE_AT] - layout[AFTER_VALUE];

            if (length > room - copied)
                break;
            copy(values + copied, at + layout[VALUE_AT], length);
            starts[count] = copied;
            starts[capacity + count] = length;
            copied += length;
        }
        put_fields(at, fields, field_count, layout[IS_BIG], columns + count, capacity);
        position += total;
        bounds[++count] = position;
    }
    return count;
}
