/* The threads use elements of one line one after the other, each for a long turn;
 * meanwhile the others work on their own memory. So the line moves only once a turn,
 * which costs nothing.
 * After: SHERIFF Table 1, "non-interleaved false sharing". */
#include "workload.h"

struct slot {
    uint64_t sum;
} OWN_LINE;

ON_LINE struct slot slots[MAX_THREADS];
static pthread_barrier_t turn_is_over;

static OPAQUE void add(struct slot *slot, uint64_t *journal, uint64_t value) {
    journal[value % JOURNAL] = value;
    slot->sum += value; /* touch: slots */
}

static void work(struct part *part) {
    uint64_t *journal = new_journal();
    struct slot *own = aligned_alloc(LINE, LINE);
    own->sum = 0;
    for (long turn = 0; turn < part->threads; turn++) {
        struct slot *slot = turn == part->id ? &slots[part->id] : own;
        for (long i = part->begin; i < part->end; i++)
            add(slot, journal, ((uint64_t)i * 0x9e3779b97f4a7c15u) >> 56);
        pthread_barrier_wait(&turn_is_over);
    }
    free(own);
    free(journal);
}

int main(int argc, char **argv) {
    struct arguments a = read_arguments(argc, argv);
    check_layout(on_one_line(&slots[0], &slots[1]) != IS_FIXED, "slots");
    pthread_barrier_init(&turn_is_over, NULL, (unsigned)a.threads);
    run_threads(a, work);
    uint64_t sum = 0;
    for (long i = 0; i < a.threads; i++) sum += slots[i].sum;
    print_checksum(sum);
    return 0;
}
