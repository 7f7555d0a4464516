/* A range that is only read lies beside a range that some of the threads read and
 * write together, as a device's settings beside its queues' counters: the readers
 * suffer from false, the writers from true sharing. The even threads write, the odd
 * ones read; the fixed variant separates the readers only.
 * After: CCBench's fs_mixed, Plastic section 6.2 and Table 1. */
#include "workload.h"

struct device {
    uint64_t mtu;   /* read by the odd threads */
    uint64_t flags; /* read by the odd threads */
    OWN_LINE uint64_t sent; /* updated by the even threads */
    uint64_t bytes;         /* updated by the even threads */
};

ON_LINE struct device device = {1500, 3, 0, 0};
static uint64_t fits[MAX_THREADS][LINE / sizeof(uint64_t)] ON_LINE;

static OPAQUE void send(struct device *d, uint64_t *journal, uint64_t length) {
    journal[length % JOURNAL] = length;
    __atomic_fetch_add(&d->sent, 1, __ATOMIC_RELAXED); /* touch: counters */
    __atomic_fetch_add(&d->bytes, length, __ATOMIC_RELAXED);
}

static OPAQUE uint64_t route(const struct device *d, uint64_t *journal, uint64_t length) {
    journal[length % JOURNAL] = length;
    return d->flags & (length <= d->mtu); /* touch: settings */
}

/* Writers divide all items among themselves, and so do readers; a reader has twelve
 * times as many, because it is faster. */
static void work(struct part *part) {
    uint64_t *journal = new_journal();
    long writers = (part->threads + 1) / 2, readers = part->threads / 2;
    int is_writer = part->id % 2 == 0;
    long peers = is_writer ? writers : readers, rank = part->id / 2;
    long size = is_writer ? part->size : 12 * part->size;
    uint64_t count = 0;
    for (long i = size * rank / peers; i < size * (rank + 1) / peers; i++) {
        uint64_t length = ((uint64_t)i * 0x9e3779b97f4a7c15u) >> 53;
        if (is_writer)
            send(&device, journal, length);
        else
            count += route(&device, journal, length);
    }
    fits[part->id][0] = count;
    free(journal);
}

int main(int argc, char **argv) {
    struct arguments a = read_arguments(argc, argv);
    check_layout(on_one_line(&device.mtu, &device.sent) != IS_FIXED, "device");
    run_threads(a, work);
    uint64_t sum = device.sent + device.bytes;
    for (long i = 0; i < a.threads; i++) sum += fits[i][0];
    print_checksum(sum);
    return 0;
}
