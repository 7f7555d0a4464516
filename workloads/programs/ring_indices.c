/* Queues of one producer and one consumer in a ring: the index that the producer
 * writes lies beside the one that the consumer writes. Each side keeps its last
 * reading of the other's index and reads it again only when the ring seems full or
 * empty; then the sharing is true, otherwise false. Two threads a queue. */
#include "workload.h"

enum { SLOTS = 4096 };

struct ring {
    /* the producer's */
    OWN_LINE uint64_t head;
    uint64_t seen_tail;
    /* the consumer's */
    OWN_LINE uint64_t tail;
    uint64_t seen_head;
    /* never changed */
    OWN_LINE uint64_t *slots;
} ON_LINE;

struct ring rings[MAX_THREADS / 2];
static uint64_t received[MAX_THREADS][LINE / sizeof(uint64_t)] ON_LINE;

static OPAQUE int push(struct ring *r, uint64_t value) {
    uint64_t head = r->head;
    if (head - r->seen_tail == SLOTS) {
        r->seen_tail = __atomic_load_n(&r->tail, __ATOMIC_ACQUIRE);
        if (head - r->seen_tail == SLOTS) return 0;
    }
    r->slots[head % SLOTS] = value;
    __atomic_store_n(&r->head, head + 1, __ATOMIC_RELEASE); /* touch: head */
    return 1;
}

static OPAQUE int pop(struct ring *r, uint64_t *value) {
    uint64_t tail = r->tail;
    if (tail == r->seen_head) {
        r->seen_head = __atomic_load_n(&r->head, __ATOMIC_ACQUIRE);
        if (tail == r->seen_head) return 0;
    }
    *value = r->slots[tail % SLOTS];
    __atomic_store_n(&r->tail, tail + 1, __ATOMIC_RELEASE); /* touch: tail */
    return 1;
}

static void work(struct part *part) {
    struct ring *ring = &rings[part->id / 2];
    long rings_used = part->threads / 2, n = part->id / 2;
    long begin = part->size * n / rings_used, end = part->size * (n + 1) / rings_used;
    uint64_t sum = 0, value = 0;
    int spins = 0;
    for (long i = begin; i < end; i++) {
        if (part->id % 2 == 0) {
            while (!push(ring, (uint64_t)i)) be_patient(&spins);
        } else {
            while (!pop(ring, &value)) be_patient(&spins);
            sum += scramble(value);
        }
    }
    received[part->id][0] = sum;
}

int main(int argc, char **argv) {
    struct arguments a = read_arguments(argc, argv);
    if (a.threads % 2 != 0) {
        fprintf(stderr, "THREADS must be even: a producer and a consumer each\n");
        return 2;
    }
    check_layout(on_one_line(&rings[0].head, &rings[0].tail) != IS_FIXED, "rings");
    for (long i = 0; i < a.threads / 2; i++)
        rings[i].slots = aligned_alloc(LINE, SLOTS * sizeof(uint64_t));
    run_threads(a, work);
    uint64_t sum = 0;
    for (long i = 0; i < a.threads; i++) sum += received[i][0];
    print_checksum(sum);
    for (long i = 0; i < a.threads / 2; i++) free(rings[i].slots);
    return 0;
}
