/* A spin lock beside the data that it guards: the waiting thread reads the lock's
 * bytes again and again, and so takes the line away from the holder, which writes
 * the data. Lock and data are also truly shared, so the line is mixed. */
#include "workload.h"

enum { BUCKETS = 5 };

struct table {
    uint32_t lock;
    OWN_LINE uint64_t bucket[BUCKETS];
};

static struct table *table;

static OPAQUE void acquire(uint32_t *lock) {
    int spins = 0;
    while (__atomic_exchange_n(lock, 1, __ATOMIC_ACQUIRE) != 0) /* touch: acquire */
        while (__atomic_load_n(lock, __ATOMIC_RELAXED) != 0) /* touch: wait */
            be_patient(&spins);
}

/* Work outside of the lock, about as long as that inside. */
static OPAQUE void prepare(uint64_t *journal, uint64_t n) {
    for (int k = 0; k < JOURNAL; k++) journal[k] = scramble(n + (uint64_t)k);
}

static OPAQUE void insert(uint64_t *bucket, const uint64_t *journal, uint64_t n) {
    for (int k = 0; k < JOURNAL / 2; k++)
        bucket[(journal[k] + n) % BUCKETS] += journal[k] >> 40; /* touch: bucket */
}

static void work(struct part *part) {
    uint64_t *journal = new_journal();
    for (long i = part->begin; i < part->end; i++) {
        prepare(journal, (uint64_t)i);
        acquire(&table->lock);
        insert(table->bucket, journal, (uint64_t)i);
        __atomic_store_n(&table->lock, 0, __ATOMIC_RELEASE); /* touch: release */
    }
    free(journal);
}

int main(int argc, char **argv) {
    struct arguments a = read_arguments(argc, argv);
    table = aligned_alloc(LINE, (sizeof *table + LINE - 1) / LINE * LINE); /* alloc: table */
    memset(table, 0, sizeof *table);
    check_layout(on_one_line(&table->lock, table->bucket) != IS_FIXED, "table");
    run_threads(a, work);
    uint64_t sum = 0;
    for (int b = 0; b < BUCKETS; b++) sum = sum * 31 + table->bucket[b];
    print_checksum(sum);
    free(table);
    return 0;
}
