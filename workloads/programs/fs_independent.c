/* Threads read and write values of their own in one global array, such as the bytes
 * in which a garbage collector marks dirty cards, or the locks of a pool.
 * After: CCBench's fs_independent, Plastic section 6.2 and Table 1. */
#include "workload.h"

enum { OWN = 4, STRIDE = IS_FIXED ? LINE : OWN };

ON_LINE unsigned char dirty[MAX_THREADS * STRIDE];
static uint64_t marked[MAX_THREADS][LINE / sizeof(uint64_t)] ON_LINE;

/* Marks a card that is clean and cleans one that is dirty. */
static OPAQUE unsigned toggle(unsigned char *cards, uint64_t *journal, uint64_t n) {
    unsigned char *card = &cards[n % OWN];
    journal[n % JOURNAL] = n;
    if (*card == 0) {
        *card = 1; /* touch: write */
        return 1;
    }
    *card = 0;
    return 0;
}

static void work(struct part *part) {
    uint64_t *journal = new_journal();
    uint64_t count = 0;
    for (long i = part->begin; i < part->end; i++)
        count += 1 + toggle(&dirty[part->id * STRIDE], journal, (uint64_t)i) / 2;
    marked[part->id][0] = count;
    free(journal);
}

int main(int argc, char **argv) {
    struct arguments a = read_arguments(argc, argv);
    check_layout(on_one_line(&dirty[0], &dirty[STRIDE]) != IS_FIXED, "dirty");
    run_threads(a, work);
    uint64_t sum = 0;
    for (long i = 0; i < a.threads; i++) sum += marked[i][0];
    print_checksum(sum);
    return 0;
}
