/* Prints how many vector registers hold something above their lowest 16 bytes after a checksum of each length; nothing if
   the processor has no such registers. */

#include <stdio.h>

#include "walks.c"

#if defined(__x86_64__)
__attribute__((target("avx"))) static int count_upper_parts(void)
{
    static uint8_t registers[16][32];
    int found = 0;

#define STORE(number) __asm__ volatile("vmovdqu %%ymm" #number ", %0" : "=m"(registers[number]));
    STORE(0) STORE(1) STORE(2) STORE(3) STORE(4) STORE(5) STORE(6) STORE(7)
    STORE(8) STORE(9) STORE(10) STORE(11) STORE(12) STORE(13) STORE(14) STORE(15)
    for (int number = 0; number < 16; number++) {
        int is_used = 0;

        for (int place = 16; place < 32; place++)
            is_used |= registers[number][place];
        found += is_used != 0;
    }
    return found;
}

int main(void)
{
    static uint8_t data[4096];
    uint32_t (*volatile compute)(const struct crc *, bytes, int64_t) = checksum;

    if (!__builtin_cpu_supports("avx"))
        return 0;
    for (int place = 0; place < (int)sizeof data; place++)
        data[place] = (uint8_t)(37 * place + 11);
    for (int size = 0; size <= (int)sizeof data; size++) {
        const struct crc *each = size % 2 ? &crc32c : &crc32;

        __asm__ volatile("vzeroupper");
        compute(each, data, size);
        printf("%d\n", count_upper_parts());
    }
    return 0;
}
#else
int main(void)
{
    return 0;
}
#endif
