/* One thread's object is freed, and another thread's object, which uses another word,
 * gets its address. By addresses alone it looks like false sharing; no object is
 * shared.
 * After: SHERIFF Table 1, "heap reuse (no sharing)". */
#include "workload.h"

enum { ROUNDS = 24, WORDS = 6 };

static uint64_t *block;
static pthread_barrier_t round_begins, round_ends;
static uint64_t total;

static OPAQUE void add(uint64_t *word, uint64_t *journal, uint64_t value) {
    journal[value % JOURNAL] = value;
    *word += value; /* touch: block */
}

static void work(struct part *part) {
    uint64_t *journal = new_journal();
    uint64_t *own = aligned_alloc(LINE, LINE);
    own[0] = 0;
    for (long round = 0; round < ROUNDS; round++) {
        pthread_barrier_wait(&round_begins);
        int is_mine = round % part->threads == part->id;
        uint64_t *word = is_mine ? &block[part->id % WORDS] : own;
        for (long i = 0; i < part->size / ROUNDS; i++)
            add(word, journal, ((uint64_t)i * 0x9e3779b97f4a7c15u) >> 56);
        pthread_barrier_wait(&round_ends);
    }
    free(own);
    free(journal);
}

static OPAQUE uint64_t *new_even_block(void) {
    return calloc(WORDS, sizeof(uint64_t)); /* alloc: even */
}

static OPAQUE uint64_t *new_odd_block(void) {
    return calloc(WORDS, sizeof(uint64_t)); /* alloc: odd */
}

/* A thread beside the workers allocates a block for each round; the fixed variant
 * never reuses an address. */
static void *hand_out(void *argument) {
    (void)argument;
    for (long round = 0; round < ROUNDS; round++) {
        block = round % 2 ? new_odd_block() : new_even_block();
        pthread_barrier_wait(&round_begins);
        pthread_barrier_wait(&round_ends);
        for (int w = 0; w < WORDS; w++) total += block[w];
        if (!IS_FIXED) free(block);
    }
    return NULL;
}

int main(int argc, char **argv) {
    struct arguments a = read_arguments(argc, argv);
    pthread_barrier_init(&round_begins, NULL, (unsigned)a.threads + 1);
    pthread_barrier_init(&round_ends, NULL, (unsigned)a.threads + 1);
    pthread_t giver;
    if (pthread_create(&giver, NULL, hand_out, NULL) != 0) return 3;
    run_threads(a, work);
    pthread_join(giver, NULL);
    print_checksum(total);
    return 0;
}
