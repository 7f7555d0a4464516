/* Prints the addresses of its own data, and its mappings, as the kernel has them. */
#include <stdio.h>

struct slot {
    long key, value;
};

_Alignas(64) __thread struct slot wide[3];
__thread char narrow = 1;
struct slot zeroed[5];
struct slot filled[2] = { { 1, 2 }, { 3, 4 } };
static struct slot *const constant[2] = { zeroed, filled };

int main(void)
{
    printf("fs %p\n", __builtin_thread_pointer());
    printf("wide[2].value %p\n", (void *)&wide[2].value);
    printf("narrow %p\n", (void *)&narrow);
    printf("zeroed[4].key %p\n", (void *)&zeroed[4].key);
    printf("filled[1].value %p\n", (void *)&filled[1].value);
    printf("constant[1] %p\n", (void *)&constant[1]);
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[4096];
    while (maps && fgets(line, sizeof line, maps))
        fputs(line, stdout);
    return 0;
}
