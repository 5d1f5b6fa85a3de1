/*
 * Walks over whole buffers whose steps depend on the one before, so that NumPy cannot take them at once.
 *
 * Each function gets every buffer with its size, and reads and writes nothing outside of it. It stops at the first byte
 * that it is not sure about, and says how far it came: what that byte means is decided in Python, and nowhere else.
 *
 * Specified in litelog/native/README.md.
 */

#include <stdint.h>
#include <string.h>

#if !defined(__BYTE_ORDER__) || __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "written for little-endian machines; litelog works without this library"
#endif

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#ifndef SOURCE_CHECKSUM
#define SOURCE_CHECKSUM 0
#endif

typedef const uint8_t *bytes;

/* A reflected CRC of 32 bits: table[k][b] is what byte b contributes with k bytes after it. */
struct crc {
    uint32_t polynomial;
    uint32_t table[8][256];
    uint64_t near[2], far[2]; /* factors that move 16 bytes by 16 bytes, and by 64 */
};

static struct crc crc32c = {.polynomial = 0x82F63B78}, crc32 = {.polynomial = 0xEDB88320};
static int can_fold;

/* x to the power of `exponent`, modulo the polynomial, as a factor for a multiplication without carries. */
static uint64_t factor(uint32_t polynomial, int exponent)
{
    uint32_t value = 0x80000000;

    while (exponent--)
        value = value & 1 ? value >> 1 ^ polynomial : value >> 1;
    return (uint64_t)value << 1;
}

static void prepare(struct crc *crc)
{
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t value = byte;

        for (int bit = 0; bit < 8; bit++)
            value = value & 1 ? value >> 1 ^ crc->polynomial : value >> 1;
        crc->table[0][byte] = value;
    }
    for (int after = 1; after < 8; after++)
        for (int byte = 0; byte < 256; byte++) {
            uint32_t value = crc->table[after - 1][byte];

            crc->table[after][byte] = value >> 8 ^ crc->table[0][value & 0xFF];
        }
    crc->near[0] = factor(crc->polynomial, 128 + 32);
    crc->near[1] = factor(crc->polynomial, 128 - 32);
    crc->far[0] = factor(crc->polynomial, 512 + 32);
    crc->far[1] = factor(crc->polynomial, 512 - 32);
}

__attribute__((constructor)) static void prepare_all(void)
{
    prepare(&crc32c);
    prepare(&crc32);
#if defined(__x86_64__)
    __builtin_cpu_init();
    can_fold = __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1");
#endif
}

/* The state after up to eight more bytes. */
static inline uint32_t take_few(const struct crc *crc, uint32_t state, bytes at, int64_t count)
{
    uint64_t word = 0;
    uint32_t found = count < 4 ? (uint32_t)((uint64_t)state >> (8 * count)) : 0;

    memcpy(&word, at, (size_t)count);
    word ^= state;
    for (int64_t place = 0; place < count; place++)
        found ^= crc->table[count - 1 - place][word >> (8 * place) & 0xFF];
    return found;
}

static uint32_t take_words(const struct crc *crc, uint32_t state, bytes at, int64_t count)
{
    for (; count >= 8; at += 8, count -= 8)
        state = take_few(crc, state, at, 8);
    return take_few(crc, state, at, count);
}

#if defined(__x86_64__)
#define LOAD(place) _mm_loadu_si128((const __m128i *)(place))
#define MOVE(value, factors)                                                                                           \
    _mm_xor_si128(_mm_clmulepi64_si128(value, factors, 0x00), _mm_clmulepi64_si128(value, factors, 0x11))

/* The state after `count` bytes, at least 64 and a multiple of 16: 16 bytes are moved onto those after them, until
   only 16 are left. */
__attribute__((target("pclmul,sse4.1"))) static uint32_t fold(const struct crc *crc, uint32_t state, bytes at,
                                                              int64_t count)
{
    __m128i factors = LOAD(crc->far), a = LOAD(at), b = LOAD(at + 16), c = LOAD(at + 32), d = LOAD(at + 48);
    uint8_t rest[16];

    a = _mm_xor_si128(a, _mm_cvtsi32_si128((int)state));
    for (at += 64, count -= 64; count >= 64; at += 64, count -= 64) {
        a = _mm_xor_si128(MOVE(a, factors), LOAD(at));
        b = _mm_xor_si128(MOVE(b, factors), LOAD(at + 16));
        c = _mm_xor_si128(MOVE(c, factors), LOAD(at + 32));
        d = _mm_xor_si128(MOVE(d, factors), LOAD(at + 48));
    }
    factors = LOAD(crc->near);
    a = _mm_xor_si128(MOVE(a, factors), b);
    a = _mm_xor_si128(MOVE(a, factors), c);
    a = _mm_xor_si128(MOVE(a, factors), d);
    for (; count >= 16; at += 16, count -= 16)
        a = _mm_xor_si128(MOVE(a, factors), LOAD(at));
    _mm_storeu_si128((__m128i *)rest, a);
    return take_few(crc, take_few(crc, 0, rest, 8), rest + 8, 8);
}
#endif

static uint32_t checksum(const struct crc *crc, bytes at, int64_t count)
{
    uint32_t state = 0xFFFFFFFF;

#if defined(__x86_64__)
    if (can_fold && count >= 64) {
        int64_t whole = count & ~(int64_t)15;

        state = fold(crc, state, at, whole);
        at += whole;
        count -= whole;
    }
#endif
    return ~take_words(crc, state, at, count);
}

static inline uint32_t number(bytes at, int64_t is_big)
{
    uint32_t value;

    memcpy(&value, at, 4);
    return is_big ? __builtin_bswap32(value) : value;
}

#include "digests.h"

uint32_t litelog_source_checksum(void)
{
    return SOURCE_CHECKSUM;
}

/* Whether checksums are as fast as those of the packages that compute them otherwise. */
int64_t litelog_has_fast_checksums(void)
{
    return can_fold;
}

/*
 * Frames that state their length and their checksum.
 *
 * layout: place of the length; whether numbers are big-endian; bytes that the length does not count; fewest and most
 * bytes of a frame; checksum (0 none, 1 CRC-32C, 2 CRC-32); place from which on it is computed; place of the checksum,
 * negative if counted from the frame's end, where the bytes that it covers end, too.
 *
 * Writes where frames begin from `start` on, and where the last one ends: at most capacity + 1 places. Returns their
 * number; -1 for a layout that cannot be.
 */
int64_t litelog_find_frames(bytes data, int64_t size, int64_t start, const int64_t *layout, int64_t *bounds,
                            int64_t capacity)
{
    int64_t length_at = layout[0], is_big = layout[1], others = layout[2], fewest = layout[3], most = layout[4];
    int64_t kind = layout[5], from = layout[6], stated_at = layout[7];
    const struct crc *crc = kind == 1 ? &crc32c : &crc32;
    int64_t count = 0, position = start;

    if (start < 0 || start > size || capacity < 0 || length_at < 0 || others < 0 || from < 0)
        return -1;
    if (fewest < 4 || length_at > fewest - 4 || others > fewest || from > fewest || stated_at > fewest - 4)
        return -1;
    if (stated_at < 0 && (stated_at > -4 || fewest + stated_at < from))
        return -1;
    bounds[0] = start;
    while (count < capacity && size - position >= fewest) {
        bytes at = data + position;
        int64_t total = others + (int64_t)number(at + length_at, is_big);

        if (total < fewest || total > most || total > size - position)
            break;
        if (kind) {
            int64_t end = stated_at < 0 ? total + stated_at : total;
            int64_t place = stated_at < 0 ? end : stated_at;

            if (checksum(crc, at + from, end - from) != number(at + place, is_big))
                break;
        }
        position += total;
        bounds[++count] = position;
    }
    return count;
}

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
    if (end - at >= 2) {
        uint64_t first = at[0], second = at[1];

        if (first < 0x80) {
            *value = first;
            return at + 1;
        }
        if (second < 0x80) {
            *value = (first & 0x7F) | second << 7;
            return at + 2;
        }
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
static inline bytes take_entry(bytes data, bytes at, bytes end, int64_t *start, int64_t *length)
{
    at = take_length(at, end, length);
    if (!at || *length > end - at)
        return 0;
    *start = at - data;
    return *length > 0 ? at + *length : at;
}

enum { STARTS, ENDS, TIMES, OFFSETS, KEY_STARTS, KEY_LENGTHS, VALUE_STARTS, VALUE_LENGTHS, HEADER_STARTS, HEADER_COUNTS };

/* Reads one record of Kafka; returns where it ends, null if it is not sure. */
static inline bytes take_record(bytes data, bytes at, bytes end, int64_t *row[10], int64_t slot)
{
    int64_t length;
    uint64_t time, offset, headers;
    bytes stop;

    row[STARTS][slot] = at - data;
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
    at = take_entry(data, at, stop, &row[KEY_STARTS][slot], &row[KEY_LENGTHS][slot]);
    if (!at)
        return 0;
    at = take_entry(data, at, stop, &row[VALUE_STARTS][slot], &row[VALUE_LENGTHS][slot]);
    if (!at)
        return 0;
    at = take_varint(at, stop, 5, &headers);
    if (!at || headers & 1 || headers > (uint64_t)(stop - at) || (!headers && at != stop))
        return 0;
    row[ENDS][slot] = stop - data;
    row[TIMES][slot] = (int64_t)(time >> 1 ^ -(time & 1));
    row[OFFSETS][slot] = (int64_t)(offset >> 1);
    row[HEADER_STARTS][slot] = at - data;
    row[HEADER_COUNTS][slot] = (int64_t)(headers >> 1);
    return stop;
}

/*
 * The records of Kafka's batches, which lie from begins[i] to ends[i], counts[i] of them.
 *
 * Writes ten columns of `total` numbers each, one column after the other, in the order of the enumeration above.
 * Returns the number of records if each batch holds exactly its records; otherwise -1.
 */
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
            at = take_record(data, at, end, row, slot);
            if (!at)
                return -1;
        }
        if (at != end)
            return -1;
    }
    return slot == total ? slot : -1;
}

/* The number in a line that begins with `mark`, and the place after the line; null if it is not sure. */
static inline bytes take_line(bytes at, bytes end, uint8_t mark, int64_t *value)
{
    int64_t found = 0;
    bytes digits = at + 1;

    if (end - at < 4 || *at != mark)
        return 0;
    for (at++; at < end && *at >= '0' && *at <= '9' && at - digits < 9; at++)
        found = 10 * found + (*at - '0');
    if (at == digits || end - at < 2 || at[0] != '\r' || at[1] != '\n')
        return 0;
    *value = found;
    return at + 2;
}

static int holds(const int64_t *names, int64_t count, int64_t name)
{
    for (int64_t each = 0; each < count; each++)
        if (names[each] == name)
            return 1;
    return 0;
}

/* A name of up to 8 letters in upper case, as a number; 0 for a longer one. */
static inline int64_t read_name(bytes at, int64_t length)
{
    uint64_t word = 0;

    if (length > 8)
        return 0;
    memcpy(&word, at, (size_t)length);
    return (int64_t)(word & 0xDFDFDFDFDFDFDFDF);
}

/*
 * Commands of Redis from the front of `data` on, up to the first that is not whole, or an annotation.
 *
 * no_key and second_key: names of commands without a key, and of those whose key is the second word after the name.
 * Writes six columns of `capacity` numbers each: where a command starts and ends, where its key starts, the key's
 * length (-1 for none, and then its start is 0), the command's name, and its number of words. Returns the number of
 * commands.
 */
int64_t litelog_find_commands(bytes data, int64_t size, const int64_t *no_key, int64_t no_keys,
                              const int64_t *second_key, int64_t second_keys, int64_t *columns, int64_t capacity)
{
    bytes position = data, end = data + size;
    int64_t count = 0;

    for (; count < capacity; count++) {
        int64_t words, length, name = 0, key_word = 1, key_start = 0, key_length = -1;
        bytes at = take_line(position, end, '*', &words);

        if (!at || !words)
            break;
        for (int64_t word = 0; word < words; word++) {
            at = take_line(at, end, '$', &length);
            if (!at || length > end - at - 2 || at[length] != '\r' || at[length + 1] != '\n')
                return count;
            if (word == 0) {
                name = read_name(at, length);
                key_word = holds(no_key, no_keys, name) ? 0 : holds(second_key, second_keys, name) ? 2 : 1;
            } else if (word == key_word) {
                key_start = at - data;
                key_length = length;
            }
            at += length + 2;
        }
        columns[count] = position - data;
        columns[capacity + count] = at - data;
        columns[2 * capacity + count] = key_start;
        columns[3 * capacity + count] = key_length;
        columns[4 * capacity + count] = name;
        columns[5 * capacity + count] = words;
        position = at;
    }
    return count;
}

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

static inline void copy(uint8_t *to, bytes from, int64_t count)
{
    if (count < 32 || count > 1024) {
        memcpy(to, from, (size_t)count);
        return;
    }
    for (int64_t at = 0; at < count - 32; at += 32)
        memcpy(to + at, from + at, 32);
    memcpy(to + count - 32, from + count - 32, 32);
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
