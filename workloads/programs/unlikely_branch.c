/* Totals of threads, side by side in a global array, behind a branch that is never
 * taken. The unlikely code comes back to the instruction behind the addition, so a
 * sample there does not show which way the thread came. */
#include "workload.h"

struct total {
    uint64_t sum;
} OWN_LINE;

ON_LINE struct total totals[MAX_THREADS];

static __attribute__((noinline, cold)) void start_again(struct total *total) {
    total->sum = 1;
}

static OPAQUE void add(struct total *total, uint64_t begin, uint64_t end) {
    for (uint64_t i = begin; i < end; i++) {
        uint64_t x = i * 0x9e3779b97f4a7c15u;
        /* The compiler must not know that it is never zero. */
        __asm__ volatile("" : "+r"(x));
        if (__builtin_expect(x == 0, 0))
            start_again(total);
        else
            __atomic_fetch_add(&total->sum, x >> 60, __ATOMIC_RELAXED); /* touch: sum */
    }
}

static void work(struct part *part) {
    add(&totals[part->id], (uint64_t)part->begin + 1, (uint64_t)part->end + 1);
}

int main(int argc, char **argv) {
    struct arguments a = read_arguments(argc, argv);
    check_layout(on_one_line(&totals[0], &totals[1]) != IS_FIXED, "totals");
    run_threads(a, work);
    uint64_t sum = 0;
    for (long i = 0; i < a.threads; i++) sum += totals[i].sum;
    print_checksum(sum);
    return 0;
}
