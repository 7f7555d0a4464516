/* A switch that becomes a jump table, with cases that fall through. Prints the
 * function's address, the address of the code segment, and its file offset. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

__attribute__((noinline)) long cases(long n, volatile long *p) {
    switch (n) {
    case 0: p[0] += 1; /* fall through */
    case 1: p[3] += 5; /* fall through */
    case 2: p[1] -= 7; /* fall through */
    case 3: p[5] ^= 3; /* fall through */
    case 4: p[2] |= 9; /* fall through */
    case 5: p[7] += 2; /* fall through */
    case 6: p[4] &= 6;
    }
    return p[0];
}

int main(void) {
    char line[512];
    unsigned long start, end, offset;
    FILE *maps = fopen("/proc/self/maps", "r");
    while (fgets(line, sizeof line, maps))
        if (sscanf(line, "%lx-%lx r-xp %lx", &start, &end, &offset) == 3 &&
            (uintptr_t)cases >= start && (uintptr_t)cases < end)
            printf("%lx %lx %lx\n", (unsigned long)(uintptr_t)cases, start, offset);
    return 0;
}
