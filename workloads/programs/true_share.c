/* Lock contention: all threads read and write the same word, at first to take
 * the lock, then to count under it. True sharing.
 * After: CCBench's true_share, Plastic section 6.2 and Table 1. */
#include "workload.h"

/* Bit 0 is the lock, the rest the count that it guards. */
struct cell {
    uint64_t lock_and_count;
} ON_LINE;

struct cell cells[MAX_THREADS];

static OPAQUE void count(uint64_t *cell) {
    uint64_t seen = __atomic_load_n(cell, __ATOMIC_RELAXED); /* touch: read */
    do {
        seen &= ~1ul;
    } while (!__atomic_compare_exchange_n(cell, &seen, seen | 1, 1, __ATOMIC_ACQUIRE, /* touch: lock */
                                          __ATOMIC_RELAXED));
    __atomic_store_n(cell, seen + 2, __ATOMIC_RELEASE); /* touch: unlock */
}

static void work(struct part *part) {
    uint64_t *cell = &cells[IS_FIXED ? part->id : 0].lock_and_count;
    for (long i = part->begin; i < part->end; i++) count(cell);
}

int main(int argc, char **argv) {
    struct arguments a = read_arguments(argc, argv);
    run_threads(a, work);
    uint64_t sum = 0;
    for (long i = 0; i < a.threads; i++) sum += cells[i].lock_and_count / 2;
    print_checksum(sum);
    return 0;
}
