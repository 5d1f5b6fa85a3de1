/* Entries of a buffer: where they begin, and copies of them. */

/* Writes the number of each entry that does not begin where the one before ends, the first one among them, up to
   `capacity` of them. Returns how many there are. */
int64_t litelog_find_breaks(const int64_t *starts, const int64_t *lengths, int64_t count, int64_t *breaks,
                            int64_t capacity)
{
    int64_t found = 0, follows = 0;

    for (int64_t each = 0; each < count && found < capacity; each++) {
        breaks[found] = each;
        found += each == 0 || starts[each] != follows;
        follows = (int64_t)((uint64_t)starts[each] + (uint64_t)lengths[each]);
    }
    return found;
}

/* As memcpy, which would be called for each entry. The last bytes are copied as a block that overlaps the one before. */
static inline void copy(uint8_t *to, bytes from, int64_t count)
{
    if (count < 32 || count > 8192) {
        memcpy(to, from, (size_t)count);
    } else if (count < 64) {
        memcpy(to, from, 32);
        memcpy(to + count - 32, from + count - 32, 32);
    } else {
        for (int64_t at = 0; at < count - 64; at += 64)
            memcpy(to + at, from + at, 64);
        memcpy(to + count - 64, from + count - 64, 64);
    }
}

/*
 * Copies entries back to back into `gathered`, and writes count + 1 offsets: where each begins there, and where the last
 * one ends. An entry of a negative length is empty. Returns their bytes; -1 if an entry does not lie in `data`, or they
 * do not fit.
 */
int64_t litelog_gather(bytes data, int64_t size, const int64_t *starts, const int64_t *lengths, int64_t count,
                       int32_t *offsets, uint8_t *gathered, int64_t room)
{
    int64_t total = 0;

    offsets[0] = 0;
    for (int64_t each = 0; each < count; each++) {
        int64_t start = starts[each], length = lengths[each];

        if (length > 0) {
            if (start < 0 || start > size || length > size - start || length > room - total)
                return -1;
            copy(gathered + total, data + start, length);
            total += length;
        }
        offsets[each + 1] = (int32_t)total;
    }
    return total;
}
