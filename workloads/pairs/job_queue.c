/* A queue of jobs between a producer and a consumer; with more threads there are
 * more such pairs. The producer writes head, the consumer writes tail, and both
 * are on one cache line with the counters of each side. Each side also reads the
 * other's index when it has to, so the sharing is partly real. */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { MAX_PAIRS = 8, SLOTS = 1024 };

struct queue {
    atomic_ulong head;       /* the producer's */
    unsigned long tail_seen; /* what the producer last read of tail */
    uint64_t bytes_in;
#if FIXED
    char padding[64 - 24];
#endif
    atomic_ulong tail;       /* the consumer's */
    unsigned long head_seen; /* what the consumer last read of head */
    uint64_t bytes_out;
#if FIXED
    char padding2[64 - 24];
#endif
    _Alignas(64) uint32_t slots[SLOTS];
};

static struct queue *queues[MAX_PAIRS];
static long jobs;

static int push(struct queue *q, uint32_t job) {
    unsigned long head = atomic_load_explicit(&q->head, memory_order_relaxed);
    if (head - q->tail_seen == SLOTS) {
        q->tail_seen = atomic_load_explicit(&q->tail, memory_order_acquire);
        if (head - q->tail_seen == SLOTS) return 0;
    }
    q->slots[head % SLOTS] = job;
    q->bytes_in += job & 0xfff;
    atomic_store_explicit(&q->head, head + 1, memory_order_release);
    return 1;
}

static int pop(struct queue *q, uint32_t *job) {
    unsigned long tail = atomic_load_explicit(&q->tail, memory_order_relaxed);
    if (tail == q->head_seen) {
        q->head_seen = atomic_load_explicit(&q->head, memory_order_acquire);
        if (tail == q->head_seen) return 0;
    }
    *job = q->slots[tail % SLOTS];
    q->bytes_out += *job & 0xfff;
    atomic_store_explicit(&q->tail, tail + 1, memory_order_release);
    return 1;
}

static uint32_t work(uint32_t x) {
    for (int i = 0; i < 6; i++) {
        x ^= x >> 15;
        x *= 2246822519u;
    }
    return x;
}

static void *produce(void *argument) {
    for (long i = 0; i < jobs; i++) {
        uint32_t job = work((uint32_t)i);
        while (!push(argument, job)) sched_yield();
    }
    return NULL;
}

static void *consume(void *argument) {
    uint64_t sum = 0;
    for (long i = 0; i < jobs; i++) {
        uint32_t job;
        while (!pop(argument, &job)) sched_yield();
        sum = sum * 31 + work(job);
    }
    return (void *)(uintptr_t)sum;
}

int main(int argc, char **argv) {
    int threads = argc > 1 ? atoi(argv[1]) : 2;
    jobs = argc > 2 ? atol(argv[2]) : 100000000;
    int pairs = threads / 2;
    if (threads % 2 != 0 || pairs < 1 || pairs > MAX_PAIRS || jobs < 1) {
        fprintf(stderr, "usage: %s THREADS JOBS (an even number of threads)\n", argv[0]);
        return 2;
    }
    pthread_t producers[MAX_PAIRS], consumers[MAX_PAIRS];
    for (int p = 0; p < pairs; p++) {
        queues[p] = aligned_alloc(64, sizeof **queues);
        *queues[p] = (struct queue){0};
        pthread_create(&producers[p], NULL, produce, queues[p]);
        pthread_create(&consumers[p], NULL, consume, queues[p]);
    }
    uint64_t sum = 0;
    for (int p = 0; p < pairs; p++) {
        void *result;
        pthread_join(producers[p], NULL);
        pthread_join(consumers[p], &result);
        sum = sum * 31 + (uintptr_t)result + queues[p]->bytes_in + 3 * queues[p]->bytes_out;
        free(queues[p]);
    }
    printf("checksum %016lx\n", (unsigned long)sum);
    return 0;
}
