/* LZ4 frames of one block, made and read together with the checksums of their bytes. */

enum { DATA_FRAME_HEAD_BYTES = 15, DATA_FRAME_BYTES = DATA_FRAME_HEAD_BYTES + 12, MOST_CONTENT_BYTES = 4 << 20 };
enum { DATA_FRAME_MAGIC = 0x184D2204, DATA_FRAME_FLAGS = 0x6C }; /* version 1, independent blocks, content size, content
                                                                     checksum */

/* LZ4_compress_fast of liblz4: the last numbers are the size, the room and the acceleration. It returns 0 if the room is
   too small. */
typedef int (*compressor)(const char *, char *, int, int, int);

/* LZ4_decompress_safe of liblz4: the numbers are the size and the room. It returns a negative number for a bad block. */
typedef int (*decompressor)(const char *, char *, int, int);

static const uint32_t primes[5] = {0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D, 0x27D4EB2F, 0x165667B1};

static inline uint32_t rotate(uint32_t value, int bits)
{
    return value << bits | value >> (32 - bits);
}

static inline uint32_t load_word(bytes at)
{
    uint32_t word;

    memcpy(&word, at, 4);
    return word;
}

/* XXH32 of bytes, with the seed 0. */
static uint32_t xxh32(bytes at, int64_t size)
{
    bytes end = at + size;
    uint32_t found = primes[4];

    if (size >= 16) {
        uint32_t a = primes[0] + primes[1], b = primes[1], c = 0, d = 0 - primes[0];

        for (; end - at >= 16; at += 16) {
            a = rotate(a + load_word(at) * primes[1], 13) * primes[0];
            b = rotate(b + load_word(at + 4) * primes[1], 13) * primes[0];
            c = rotate(c + load_word(at + 8) * primes[1], 13) * primes[0];
            d = rotate(d + load_word(at + 12) * primes[1], 13) * primes[0];
        }
        found = rotate(a, 1) + rotate(b, 7) + rotate(c, 12) + rotate(d, 18);
    }
    found += (uint32_t)size;
    for (; end - at >= 4; at += 4)
        found = rotate(found + load_word(at) * primes[2], 17) * primes[3];
    for (; at < end; at++)
        found = rotate(found + *at * primes[4], 11) * primes[0];
    found = (found ^ found >> 15) * primes[1];
    found = (found ^ found >> 13) * primes[2];
    return found ^ found >> 16;
}

static void put_word(uint8_t *at, uint32_t word)
{
    memcpy(at, &word, 4);
}

/*
 * Makes the LZ4 frame of `size` bytes, up to 4 MiB, in one block, with its content size and content checksum.
 *
 * room: of `into`, `size` + DATA_FRAME_BYTES at least. LZ4 is faster if what it makes fits in any case. A block that it
 * does not make smaller is stored as it is. Writes into `facts` the CRC-32C of the content, and that of the frame.
 * Returns the size of the frame; -1 without enough room.
 */
int64_t litelog_make_frame(compressor compress, int64_t acceleration, bytes data, int64_t size, uint8_t *into,
                           int64_t room, int64_t *facts)
{
    uint8_t *block = into + DATA_FRAME_HEAD_BYTES + 4;
    int64_t stored;
    int largest = 4;

    if (size < 1 || size > MOST_CONTENT_BYTES || room < size + DATA_FRAME_BYTES ||
        room > INT32_MAX)
        return -1;
    while ((int64_t)1 << (2 * largest + 8) < size)
        largest++;
    put_word(into, DATA_FRAME_MAGIC);
    into[4] = DATA_FRAME_FLAGS;
    into[5] = (uint8_t)(largest << 4);
    memcpy(into + 6, &size, 8);
    into[14] = (uint8_t)(xxh32(into + 4, 10) >> 8);
    facts[0] = checksum(&crc32c, data, size);
    stored = compress((const char *)data, (char *)block, (int)size, (int)(room - DATA_FRAME_BYTES),
                      (int)acceleration);
    if (stored > 0 && stored < size) {
        put_word(into + DATA_FRAME_HEAD_BYTES, (uint32_t)stored);
    } else {
        put_word(into + DATA_FRAME_HEAD_BYTES, (uint32_t)size | 0x80000000);
        memcpy(block, data, (size_t)size);
        stored = size;
    }
    put_word(block + stored, 0);
    put_word(block + stored + 4, xxh32(data, size));
    facts[1] = checksum(&crc32c, into, stored + DATA_FRAME_BYTES);
    return stored + DATA_FRAME_BYTES;
}

/*
 * Reads an LZ4 frame as litelog_make_frame makes it, whose own CRC-32C is `crc` and whose content has `length` bytes,
 * into as many.
 *
 * Writes into `facts` the content checksum that the frame states, and the CRC-32C of the content, or 0 without
 * `with_crc`. Returns 0; where the content begins in the frame, if that stores it as it is: it is not copied then; or -1
 * if the frame is any other, or is damaged: `into` and `facts` may hold anything then.
 */
int64_t litelog_read_frame(decompressor decompress, bytes frame, int64_t size, int64_t crc, uint8_t *into,
                           int64_t length, int64_t with_crc, int64_t *facts)
{
    bytes block = frame + DATA_FRAME_HEAD_BYTES + 4, content = into;
    int64_t stated, stored;
    uint32_t word;

    if (size <= DATA_FRAME_BYTES || length < 1 || length > MOST_CONTENT_BYTES || checksum(&crc32c, frame, size) != crc)
        return -1;
    memcpy(&stated, frame + 6, 8);
    if (load_word(frame) != DATA_FRAME_MAGIC || frame[4] != DATA_FRAME_FLAGS || frame[5] < 4 << 4 || frame[5] & 0x8F ||
        frame[14] != (uint8_t)(xxh32(frame + 4, 10) >> 8) || stated != length)
        return -1;
    word = load_word(frame + DATA_FRAME_HEAD_BYTES);
    stored = word & 0x7FFFFFFF;
    if (stored != size - DATA_FRAME_BYTES || load_word(block + stored))
        return -1;
    if (!(word >> 31)) {
        if (decompress((const char *)block, (char *)into, (int)stored, (int)length) != length)
            return -1;
    } else {
        if (stored != length)
            return -1;
        content = block;
    }
    facts[0] = load_word(block + stored + 4);
    facts[1] = with_crc ? checksum(&crc32c, content, length) : 0;
    return content == block ? block - frame : 0;
}
