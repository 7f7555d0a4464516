/* Results that the threads add up in an array on main's stack, to which they get
 * pointers. */
#include "workload.h"

enum { STRIDE = IS_FIXED ? LINE / sizeof(uint64_t) : 1 };

static uint64_t *slots;

static OPAQUE void add(uint64_t *slot, uint64_t *journal, uint64_t value) {
    journal[value % JOURNAL] = value;
    *slot += value; /* touch: results */
}

static void work(struct part *part) {
    uint64_t *journal = new_journal();
    for (long i = part->begin; i < part->end; i++)
        add(&slots[part->id * STRIDE], journal, ((uint64_t)i * 0x9e3779b97f4a7c15u) >> 55);
    free(journal);
}

int main(int argc, char **argv) {
    struct arguments a = read_arguments(argc, argv);
    uint64_t results[MAX_THREADS * STRIDE] ON_LINE;
    memset(results, 0, sizeof results);
    slots = results;
    check_layout(on_one_line(&results[0], &results[STRIDE]) != IS_FIXED, "results");
    run_threads(a, work);
    uint64_t sum = 0;
    for (long i = 0; i < a.threads; i++) sum += results[i * STRIDE];
    print_checksum(sum);
    return 0;
}
