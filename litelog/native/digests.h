/* SHA-256 of one run of bytes, and of two at a time. The processor waits for the result of each round before it can begin
   the next, and in that time it computes a round of the other run. */

#if defined(__x86_64__)
#include <cpuid.h>

/* The first 32 bits of the fractional parts of the cube roots of the first 64 primes: FIPS 180-4, 4.2.2. */
static const uint32_t round_constants[64] __attribute__((aligned(16))) = {
    0x428A2F98, 0x71374491, 0xB5C0FBCF, 0xE9B5DBA5, 0x3956C25B, 0x59F111F1, 0x923F82A4, 0xAB1C5ED5, //
    0xD807AA98, 0x12835B01, 0x243185BE, 0x550C7DC3, 0x72BE5D74, 0x80DEB1FE, 0x9BDC06A7, 0xC19BF174, //
    0xE49B69C1, 0xEFBE4786, 0x0FC19DC6, 0x240CA1CC, 0x2DE92C6F, 0x4A7484AA, 0x5CB0A9DC, 0x76F988DA, //
    0x983E5152, 0xA831C66D, 0xB00327C8, 0xBF597FC7, 0xC6E00BF3, 0xD5A79147, 0x06CA6351, 0x14292967, //
    0x27B70A85, 0x2E1B2138, 0x4D2C6DFC, 0x53380D13, 0x650A7354, 0x766A0ABB, 0x81C2C92E, 0x92722C85, //
    0xA2BFE8A1, 0xA81A664B, 0xC24B8B70, 0xC76C51A3, 0xD192E819, 0xD6990624, 0xF40E3585, 0x106AA070, //
    0x19A4C116, 0x1E376C08, 0x2748774C, 0x34B0BCB5, 0x391C0CB3, 0x4ED8AA4A, 0x5B9CCA4F, 0x682E6FF3, //
    0x748F82EE, 0x78A5636F, 0x84C87814, 0x8CC70208, 0x90BEFFFA, 0xA4506CEB, 0xBEF9A3F7, 0xC67178F2,
};

#define HASHES __attribute__((target("sha,ssse3,sse4.1"), always_inline)) static inline

/* A run while it is hashed. The eight words of the state are ABEF and CDGH, as the instructions take them. */
struct run {
    __m128i abef, cdgh, abef_before, cdgh_before, words[4];
};

HASHES void open_run(struct run *run, const uint32_t *state)
{
    __m128i low = _mm_shuffle_epi32(_mm_loadu_si128((const __m128i *)state), 0xB1);
    __m128i high = _mm_shuffle_epi32(_mm_loadu_si128((const __m128i *)(state + 4)), 0x1B);

    run->abef = _mm_alignr_epi8(low, high, 8);
    run->cdgh = _mm_blend_epi16(high, low, 0xF0);
}

HASHES void close_run(const struct run *run, uint32_t *state)
{
    __m128i low = _mm_shuffle_epi32(run->abef, 0x1B), high = _mm_shuffle_epi32(run->cdgh, 0xB1);

    _mm_storeu_si128((__m128i *)state, _mm_blend_epi16(low, high, 0xF0));
    _mm_storeu_si128((__m128i *)(state + 4), _mm_alignr_epi8(high, low, 8));
}

HASHES void begin_block(struct run *run, bytes at)
{
    const __m128i big_endian = _mm_set_epi64x(0x0C0D0E0F08090A0B, 0x0405060700010203);

    run->abef_before = run->abef;
    run->cdgh_before = run->cdgh;
    for (int four = 0; four < 4; four++)
        run->words[four] = _mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)(at + 16 * four)), big_endian);
}

/* Four rounds, and the four words of the message that are needed 16 rounds later. */
HASHES void take_rounds(struct run *run, int four)
{
    __m128i words = run->words[four & 3], before = run->words[(four + 3) & 3];
    __m128i added = _mm_add_epi32(words, _mm_load_si128((const __m128i *)(round_constants + 4 * four)));

    run->cdgh = _mm_sha256rnds2_epu32(run->cdgh, run->abef, added);
    run->abef = _mm_sha256rnds2_epu32(run->abef, run->cdgh, _mm_shuffle_epi32(added, 0x0E));
    if (four < 12) {
        __m128i next = _mm_sha256msg1_epu32(words, run->words[(four + 1) & 3]);

        next = _mm_add_epi32(next, _mm_alignr_epi8(before, run->words[(four + 2) & 3], 4));
        run->words[four & 3] = _mm_sha256msg2_epu32(next, before);
    }
}

HASHES void end_block(struct run *run)
{
    run->abef = _mm_add_epi32(run->abef, run->abef_before);
    run->cdgh = _mm_add_epi32(run->cdgh, run->cdgh_before);
}

__attribute__((target("sha,ssse3,sse4.1"))) static void hash_one(uint32_t *state, bytes at, int64_t blocks)
{
    struct run run;

    open_run(&run, state);
    for (; blocks--; at += 64) {
        begin_block(&run, at);
#pragma GCC unroll 16
        for (int four = 0; four < 16; four++)
            take_rounds(&run, four);
        end_block(&run);
    }
    close_run(&run, state);
}

__attribute__((target("sha,ssse3,sse4.1"))) static void hash_two(uint32_t *state, bytes at, uint32_t *other_state,
                                                                  bytes other_at, int64_t blocks)
{
    struct run run, other;

    open_run(&run, state);
    open_run(&other, other_state);
    for (; blocks--; at += 64, other_at += 64) {
        begin_block(&run, at);
        begin_block(&other, other_at);
#pragma GCC unroll 16
        for (int four = 0; four < 16; four++) {
            take_rounds(&run, four);
            take_rounds(&other, four);
        }
        end_block(&run);
        end_block(&other);
    }
    close_run(&run, state);
    close_run(&other, other_state);
}

static int can_hash(void)
{
    unsigned int eax, ebx, ecx, edx;

    return __builtin_cpu_supports("ssse3") && __builtin_cpu_supports("sse4.1") &&
           __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) && (ebx >> 29 & 1);
}
#else
static void hash_one(uint32_t *state, bytes at, int64_t blocks)
{
    (void)state, (void)at, (void)blocks;
}

static void hash_two(uint32_t *state, bytes at, uint32_t *other_state, bytes other_at, int64_t blocks)
{
    (void)state, (void)at, (void)other_state, (void)other_at, (void)blocks;
}

static int can_hash(void)
{
    return 0;
}
#endif

/* Whether the processor has instructions for SHA-256. Without them the functions below return -1. */
int64_t litelog_can_hash(void)
{
    return can_hash();
}

/* Take the whole blocks of `size` bytes into a state of eight words. Returns how many bytes they are. */
int64_t litelog_hash(uint32_t *state, bytes data, int64_t size)
{
    if (size < 0 || !can_hash())
        return -1;
    hash_one(state, data, size / 64);
    return size & ~(int64_t)63;
}

/* The same for two runs of the same size at a time. */
int64_t litelog_hash_two(uint32_t *state, bytes data, uint32_t *other_state, bytes other_data, int64_t size)
{
    if (size < 0 || !can_hash())
        return -1;
    hash_two(state, data, other_state, other_data, size / 64);
    return size & ~(int64_t)63;
}
