/* All threads count in the same word: true sharing, which no layout removes. The
 * fixed variant has a count for each thread.
 * After: SHERIFF Table 1, "true sharing". */
#include "workload.h"

struct total {
    uint64_t events;
} ON_LINE;

struct total totals[MAX_THREADS];

static void count_events(struct part *part) {
    struct total *mine = &totals[IS_FIXED ? part->id : 0];
    for (long i = part->begin; i < part->end; i++) {
        if (scramble((uint64_t)i) % 16 != 0)
            __atomic_fetch_add(&mine->events, 1, __ATOMIC_RELAXED); /* touch: totals */
    }
}

int main(int argc, char **argv) {
    struct arguments a = read_arguments(argc, argv);
    run_threads(a, count_events);
    uint64_t sum = 0;
    for (long i = 0; i < a.threads; i++) sum += totals[i].events;
    print_checksum(sum);
    return 0;
}
