/* CRC-32C and CRC-32 of bytes. */

/* A reflected CRC of 32 bits: table[k][b] is what byte b contributes with k bytes after it. */
struct crc {
    uint32_t polynomial;
    uint32_t table[8][256];
    uint64_t by_16[2], by_32[2], by_64[2], by_128[2], by_256[2]; /* factors that move 16 bytes by so many */
    int has_instruction;                   /* whether the processor has one for this polynomial */
};

static struct crc crc32c = {.polynomial = 0x82F63B78}, crc32 = {.polynomial = 0xEDB88320};
static int can_fold;
#if defined(__x86_64__)
static int can_fold_pairs, can_fold_wide;
#endif
static uint32_t moves[4][256]; /* factors that move a CRC-32C by up to 2**32 words of eight bytes: see prepare_moves */

/* Older versions of GCC compile the instruction for registers of 32 bytes only together with AVX-512. */
#if defined(__clang__) || __GNUC__ >= 12
#define CAN_BUILD_PAIRS 1
#else
#define CAN_BUILD_PAIRS 0
#endif

/* x to the power of `exponent`, modulo the polynomial, as a factor for a multiplication without carries. */
static uint64_t factor(uint32_t polynomial, int exponent)
{
    uint32_t value = 0x80000000;

    while (exponent--)
        value = value & 1 ? value >> 1 ^ polynomial : value >> 1;
    return (uint64_t)value << 1;
}

static void prepare_factors(uint32_t polynomial, int distance, uint64_t *factors)
{
    factors[0] = factor(polynomial, 8 * distance + 32);
    factors[1] = factor(polynomial, 8 * distance - 32);
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
    prepare_factors(crc->polynomial, 16, crc->by_16);
    prepare_factors(crc->polynomial, 32, crc->by_32);
    prepare_factors(crc->polynomial, 64, crc->by_64);
    prepare_factors(crc->polynomial, 128, crc->by_128);
    prepare_factors(crc->polynomial, 256, crc->by_256);
}

/* The product of two polynomials, as reflected CRCs have them, modulo the polynomial of CRC-32C. */
static uint32_t multiply(uint32_t left, uint32_t right)
{
    uint32_t found = 0;

    for (uint32_t bit = 0x80000000; bit; bit >>= 1) {
        found ^= left & bit ? right : 0;
        right = right & 1 ? right >> 1 ^ crc32c.polynomial : right >> 1;
    }
    return found;
}

/* moves[k][n] moves a value by n * 256**k words, if the product is reduced with the processor's own instruction: that
   multiplies it by x to the power of 33. */
static void prepare_moves(void)
{
    uint32_t step = (uint32_t)(factor(crc32c.polynomial, 64) >> 1), back = 0x80000000;

    for (int bit = 0; bit < 33; bit++)
        back = back & 0x80000000 ? (back ^ crc32c.polynomial) << 1 | 1 : back << 1;
    for (int place = 0; place < 4; place++) {
        moves[place][0] = back;
        for (int words = 1; words < 256; words++)
            moves[place][words] = multiply(moves[place][words - 1], step);
        for (int bit = 0; bit < 8; bit++)
            step = multiply(step, step);
    }
}

__attribute__((constructor)) static void prepare_all(void)
{
    prepare(&crc32c);
    prepare(&crc32);
    prepare_moves();
#if defined(__x86_64__)
    __builtin_cpu_init();
    can_fold = __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1");
    can_fold_pairs = can_fold && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("vpclmulqdq");
    can_fold_pairs &= CAN_BUILD_PAIRS;
    can_fold_wide = can_fold && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("vpclmulqdq");
    crc32c.has_instruction = __builtin_cpu_supports("sse4.2");
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
    return count ? take_few(crc, state, at, count) : state;
}

#if defined(__x86_64__)
#define LOAD(place) _mm_loadu_si128((const __m128i *)(place))
#define MOVE(value, factors)                                                                                           \
    _mm_xor_si128(_mm_clmulepi64_si128(value, factors, 0x00), _mm_clmulepi64_si128(value, factors, 0x11))
#define LOAD_WIDE(place) _mm512_loadu_si512((const void *)(place))
#define MOVE_WIDE(value, factors, onto)                                                                                \
    _mm512_ternarylogic_epi64(_mm512_clmulepi64_epi128(value, factors, 0x00),                                          \
                              _mm512_clmulepi64_epi128(value, factors, 0x11), onto, 0x96)

#define LOAD_PAIR(place) _mm256_loadu_si256((const __m256i *)(place))
#define MOVE_PAIR(value, factors, onto)                                                                                \
    _mm256_xor_si256(onto, _mm256_xor_si256(_mm256_clmulepi64_epi128(value, factors, 0x00),                            \
                                            _mm256_clmulepi64_epi128(value, factors, 0x11)))

enum { FOLDED_BYTES = 64, PAIR_BYTES = 128, WIDE_BYTES = 256, LONG_BYTES = 384, LONG_PAIR_BYTES = 256 };
enum { SOON_BYTES = 4096 }; /* how far ahead bytes are asked for, which may lie outside of the buffer: a page */

/* As take_words, with the processor's own instruction for CRC-32C. */
__attribute__((target("sse4.2"))) static inline uint32_t take_instructed(uint32_t state, bytes at, int64_t count)
{
    uint64_t word, found = state;

    for (; count >= 8; at += 8, count -= 8) {
        memcpy(&word, at, 8);
        found = _mm_crc32_u64(found, word);
    }
    state = (uint32_t)found;
    if (count & 4) {
        uint32_t half;

        memcpy(&half, at, 4);
        state = _mm_crc32_u32(state, half);
        at += 4;
    }
    for (count &= 3; count; count--)
        state = _mm_crc32_u8(state, *at++);
    return state;
}

static inline uint32_t take_rest(const struct crc *crc, uint32_t state, bytes at, int64_t count)
{
    return crc->has_instruction ? take_instructed(state, at, count) : take_words(crc, state, at, count);
}

/* The state after the 16 bytes in `value`, and `count` more, a multiple of 16. */
__attribute__((target("pclmul,sse4.1"))) static inline uint32_t fold_rest(const struct crc *crc, __m128i value, bytes at,
                                                                          int64_t count)
{
    __m128i factors = LOAD(crc->by_16);
    uint8_t rest[16];

    for (; count >= 16; at += 16, count -= 16)
        value = _mm_xor_si128(MOVE(value, factors), LOAD(at));
    _mm_storeu_si128((__m128i *)rest, value);
    return take_rest(crc, 0, rest, 16);
}

/* The state after `count` bytes, at least 64 and a multiple of 16: 16 bytes are moved onto those after them, until
   only 16 are left. */
__attribute__((target("pclmul,sse4.1"))) static uint32_t fold(const struct crc *crc, uint32_t state, bytes at,
                                                              int64_t count)
{
    __m128i factors = LOAD(crc->by_64), a = LOAD(at), b = LOAD(at + 16), c = LOAD(at + 32), d = LOAD(at + 48);

    a = _mm_xor_si128(a, _mm_cvtsi32_si128((int)state));
    for (at += 64, count -= 64; count >= 64; at += 64, count -= 64) {
        a = _mm_xor_si128(MOVE(a, factors), LOAD(at));
        b = _mm_xor_si128(MOVE(b, factors), LOAD(at + 16));
        c = _mm_xor_si128(MOVE(c, factors), LOAD(at + 32));
        d = _mm_xor_si128(MOVE(d, factors), LOAD(at + 48));
    }
    factors = LOAD(crc->by_16);
    a = _mm_xor_si128(MOVE(a, factors), b);
    a = _mm_xor_si128(MOVE(a, factors), c);
    a = _mm_xor_si128(MOVE(a, factors), d);
    return fold_rest(crc, a, at, count);
}

#if CAN_BUILD_PAIRS
/* As `fold`, in registers of 32 bytes; `count` is at least 128. The processor asks for the bytes after these only up to
   the end of a page. */
__attribute__((target("avx2,vpclmulqdq,pclmul,sse4.1"))) static uint32_t fold_pairs(const struct crc *crc,
                                                                                    uint32_t state, bytes at,
                                                                                    int64_t count)
{
    __m256i factors = _mm256_broadcastsi128_si256(LOAD(crc->by_128)), a = LOAD_PAIR(at), b = LOAD_PAIR(at + 32);
    __m256i c = LOAD_PAIR(at + 64), d = LOAD_PAIR(at + 96);
    __m128i value;

    a = _mm256_xor_si256(a, _mm256_zextsi128_si256(_mm_cvtsi32_si128((int)state)));
    for (at += 128, count -= 128; count >= 128; at += 128, count -= 128) {
        __builtin_prefetch((const void *)((uintptr_t)at + SOON_BYTES));
        __builtin_prefetch((const void *)((uintptr_t)at + SOON_BYTES + 64));
        a = MOVE_PAIR(a, factors, LOAD_PAIR(at));
        b = MOVE_PAIR(b, factors, LOAD_PAIR(at + 32));
        c = MOVE_PAIR(c, factors, LOAD_PAIR(at + 64));
        d = MOVE_PAIR(d, factors, LOAD_PAIR(at + 96));
    }
    factors = _mm256_broadcastsi128_si256(LOAD(crc->by_32));
    b = MOVE_PAIR(a, factors, b);
    c = MOVE_PAIR(b, factors, c);
    d = MOVE_PAIR(c, factors, d);
    for (; count >= 32; at += 32, count -= 32)
        d = MOVE_PAIR(d, factors, LOAD_PAIR(at));
    value = _mm_xor_si128(MOVE(_mm256_castsi256_si128(d), LOAD(crc->by_16)), _mm256_extracti128_si256(d, 1));
    _mm256_zeroupper(); /* as in fold_wide */
    return fold_rest(crc, value, at, count);
}
#endif

/* As `fold`, in registers of 64 bytes; `count` is at least 256. */
__attribute__((target("avx512f,vpclmulqdq,pclmul,sse4.1"))) static uint32_t fold_wide(const struct crc *crc,
                                                                                      uint32_t state, bytes at,
                                                                                      int64_t count)
{
    __m512i factors = _mm512_broadcast_i32x4(LOAD(crc->by_256)), a = LOAD_WIDE(at), b = LOAD_WIDE(at + 64);
    __m512i c = LOAD_WIDE(at + 128), d = LOAD_WIDE(at + 192);
    __m128i near = LOAD(crc->by_16), value;

    a = _mm512_xor_si512(a, _mm512_zextsi128_si512(_mm_cvtsi32_si128((int)state)));
    for (at += 256, count -= 256; count >= 256; at += 256, count -= 256) {
        a = MOVE_WIDE(a, factors, LOAD_WIDE(at));
        b = MOVE_WIDE(b, factors, LOAD_WIDE(at + 64));
        c = MOVE_WIDE(c, factors, LOAD_WIDE(at + 128));
        d = MOVE_WIDE(d, factors, LOAD_WIDE(at + 192));
    }
    factors = _mm512_broadcast_i32x4(LOAD(crc->by_64));
    b = MOVE_WIDE(a, factors, b);
    c = MOVE_WIDE(b, factors, c);
    d = MOVE_WIDE(c, factors, d);
    for (; count >= 64; at += 64, count -= 64)
        d = MOVE_WIDE(d, factors, LOAD_WIDE(at));
    value = _mm512_castsi512_si128(d);
    value = _mm_xor_si128(MOVE(value, near), _mm512_extracti32x4_epi32(d, 1));
    value = _mm_xor_si128(MOVE(value, near), _mm512_extracti32x4_epi32(d, 2));
    value = _mm_xor_si128(MOVE(value, near), _mm512_extracti32x4_epi32(d, 3));
    /* GCC leaves this out if it sees that the rest uses no such registers. While their upper parts hold something, SHA-256
       takes 2.5 times as long, and LZ4 is slower, too. */
    _mm256_zeroupper();
    return fold_rest(crc, value, at, count);
}
#endif

#if defined(__x86_64__)
/* The state after `count` bytes, at least 64 and a multiple of 16, in the widest registers that pay. */
static inline uint32_t fold_any(const struct crc *crc, uint32_t state, bytes at, int64_t count)
{
    if (can_fold_wide && count >= WIDE_BYTES)
        return fold_wide(crc, state, at, count);
#if CAN_BUILD_PAIRS
    if (can_fold_pairs && count >= PAIR_BYTES)
        return fold_pairs(crc, state, at, count);
#endif
    return fold(crc, state, at, count);
}
#endif

#if defined(__x86_64__)
__attribute__((target("pclmul,sse4.2"))) static uint32_t move_words(uint32_t value, uint64_t words)
{
    for (int place = 0; words && place < 4; place++, words >>= 8)
        if (words & 0xFF) {
            __m128i factors = _mm_cvtsi32_si128((int)moves[place][words & 0xFF]);
            __m128i product = _mm_clmulepi64_si128(_mm_cvtsi32_si128((int)value), factors, 0x00);

            value = (uint32_t)_mm_crc32_u64(0, (uint64_t)_mm_cvtsi128_si64(product));
        }
    return value;
}
#else
static uint32_t move_words(uint32_t value, uint64_t words)
{
    (void)words;
    return value;
}
#endif

enum { OWN_CHECKSUM = 0x48674BC7 }; /* the CRC-32C of any bytes followed by their own */

/* The CRC-32C of bytes with the CRC-32C `before`, followed by `size` bytes, a multiple of 8, that end with their own. */
static uint32_t append_checked(uint32_t before, int64_t size)
{
    return move_words(before, (uint64_t)size >> 3) ^ OWN_CHECKSUM;
}

static uint32_t checksum(const struct crc *crc, bytes at, int64_t count)
{
    uint32_t state = 0xFFFFFFFF;

#if defined(__x86_64__)
    int64_t instructed = can_fold_pairs ? LONG_PAIR_BYTES : LONG_BYTES;

    if (can_fold && count >= (crc->has_instruction ? instructed : FOLDED_BYTES)) {
        int64_t whole = count & ~(int64_t)15;

        state = fold_any(crc, state, at, whole);
        at += whole;
        count -= whole;
    }
    return ~take_rest(crc, state, at, count);
#else
    return ~take_words(crc, state, at, count);
#endif
}

/* CRC-32C of two joined runs of bytes, from the CRC of each and the second's length in bytes. */
int64_t litelog_combine(int64_t first, int64_t second, int64_t second_length)
{
    uint32_t power = 0x00800000; /* of x: for a byte */
    uint32_t moved = (uint32_t)first;

    for (; second_length > 0; second_length >>= 1) {
        moved = second_length & 1 ? multiply(moved, power) : moved;
        power = multiply(power, power);
    }
    return moved ^ (uint32_t)second;
}
