/* A ring of recent events, kept for a look after a crash. In each round every
 * producer has one cell of eight bytes: a sequence number, odd while it writes,
 * and an event. The cells of one round lie side by side on one cache line. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { MAX_THREADS = 16, ROUNDS = 16 };

struct cell {
    atomic_uint sequence;
    atomic_uint event;
};

static struct cell *ring;
static int threads;
static long events;

static struct cell *cell_of(int producer, long round) {
#if FIXED
    return &ring[producer * ROUNDS + round % ROUNDS]; /* 128 bytes a producer */
#else
    return &ring[round % ROUNDS * threads + producer];
#endif
}

static void record(int producer, long round, uint32_t event) {
    struct cell *c = cell_of(producer, round);
    unsigned sequence = atomic_load_explicit(&c->sequence, memory_order_relaxed);
    atomic_store_explicit(&c->sequence, sequence + 1, memory_order_relaxed);
    atomic_thread_fence(memory_order_release);
    atomic_store_explicit(&c->event, event, memory_order_relaxed);
    atomic_store_explicit(&c->sequence, sequence + 2, memory_order_release);
}

/* A simulated machine that makes the events. */
static uint32_t next_event(uint32_t *state) {
    uint32_t x = *state;
    x ^= x << 13;
    x ^= x >> 17;
    x ^= x << 5;
    return *state = x;
}

static void *produce(void *argument) {
    int producer = (int)(intptr_t)argument;
    uint32_t state = 2463534242u + (uint32_t)producer;
    for (long round = 0; round < events; round++)
        record(producer, round, next_event(&state));
    return NULL;
}

int main(int argc, char **argv) {
    threads = argc > 1 ? atoi(argv[1]) : 8;
    events = argc > 2 ? atol(argv[2]) : 15000000;
    if (threads < 1 || threads > MAX_THREADS || events < 1) {
        fprintf(stderr, "usage: %s THREADS EVENTS\n", argv[0]);
        return 2;
    }
    ring = aligned_alloc(64, (size_t)threads * ROUNDS * sizeof *ring);
    for (int i = 0; i < threads * ROUNDS; i++) {
        atomic_init(&ring[i].sequence, 0);
        atomic_init(&ring[i].event, 0);
    }
    pthread_t producers[MAX_THREADS];
    for (int t = 0; t < threads; t++)
        pthread_create(&producers[t], NULL, produce, (void *)(intptr_t)t);
    for (int t = 0; t < threads; t++)
        pthread_join(producers[t], NULL);
    uint64_t sum = 0;
    for (int t = 0; t < threads; t++) {
        for (long round = 0; round < ROUNDS; round++) {
            struct cell *c = cell_of(t, round);
            sum = sum * 31 + atomic_load(&c->event) + 7ul * atomic_load(&c->sequence);
        }
    }
    printf("checksum %016lx\n", (unsigned long)sum);
    free(ring);
    return 0;
}
