/* Elements of one array, each used by one thread only.
 * After: SHERIFF Table 1, "pseudo sharing (array elements)". */
#include "workload.h"

enum { STRIDE = IS_FIXED ? LINE / sizeof(uint64_t) : 1 };

static uint64_t *counters;

static OPAQUE void tally(uint64_t *counter, uint64_t *journal, uint64_t event) {
    journal[event % JOURNAL] = event;
    *counter += event; /* touch: counters */
}

static void work(struct part *part) {
    uint64_t *journal = new_journal();
    for (long i = part->begin; i < part->end; i++)
        tally(&counters[part->id * STRIDE], journal, ((uint64_t)i * 0x9e3779b97f4a7c15u) >> 56);
    free(journal);
}

int main(int argc, char **argv) {
    struct arguments a = read_arguments(argc, argv);
    size_t bytes = (size_t)a.threads * STRIDE * sizeof *counters;
    lead_heap_to(bytes, IS_FIXED ? 0 : 16);
    counters = malloc(bytes); /* alloc: counters */
    memset(counters, 0, bytes);
    if (a.threads > 1) check_layout(on_one_line(counters, counters + STRIDE) != IS_FIXED, "counters");
    run_threads(a, work);
    uint64_t sum = 0;
    for (long i = 0; i < a.threads; i++) sum += counters[i * STRIDE];
    print_checksum(sum);
    free(counters);
    return 0;
}
