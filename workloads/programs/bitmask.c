/* Flags of different threads are bits of one byte: no two threads use the same flag,
 * but all write the same byte, so it is true sharing, and moving bytes does not help.
 * The fixed variant has one byte for each flag, on a line of its own.
 * After: CCBench's bitmask, Plastic section 6.2 and Table 1. */
#include "workload.h"

struct page {
    unsigned char flags;
} ON_LINE;

struct page pages[MAX_THREADS];

static void work(struct part *part) {
    struct page *page = &pages[IS_FIXED ? part->id : 0];
    unsigned char mine = (unsigned char)(1u << part->id % 8);
    for (long i = part->begin; i < part->end; i++) {
        if (scramble((uint64_t)i) % 4 == 0)
            __atomic_fetch_and(&page->flags, (unsigned char)~mine, __ATOMIC_RELAXED);
        else
            __atomic_fetch_xor(&page->flags, mine, __ATOMIC_RELAXED); /* touch: flags */
    }
}

int main(int argc, char **argv) {
    struct arguments a = read_arguments(argc, argv);
    if (a.threads > 8) {
        fprintf(stderr, "at most 8 THREADS: one bit each\n");
        return 2;
    }
    run_threads(a, work);
    uint64_t flags = 0;
    for (long i = 0; i < a.threads; i++) flags |= pages[i].flags;
    print_checksum(flags + ((uint64_t)a.size << 8));
    return 0;
}
