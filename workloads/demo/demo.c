/* The statistics of a small server: every thread counts what it handles in an
 * element of its own; a monitor may read them at any time, so they are atomic.
 * No element is shared, and yet the threads slow each other down: four elements
 * of 16 bytes lie on one cache line of 64.
 *
 *     gcc -O2 -g -pthread demo.c              the threads share a line falsely
 *     gcc -O2 -g -pthread -DFIXED=1 demo.c    each element has a line of its own
 *
 * usage: demo [THREADS [REQUESTS]] */
#include <pthread.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define MAX_THREADS 64

struct thread_stats {
#ifdef FIXED
    alignas(64)
#endif
    _Atomic uint64_t requests;
    _Atomic uint64_t bytes;
};

alignas(64) struct thread_stats stats[MAX_THREADS];
static long requests_per_thread = 10000000;
static pthread_barrier_t everyone_is_here;

static void *serve(void *argument) {
    struct thread_stats *mine = argument;
    pthread_barrier_wait(&everyone_is_here);
    for (uint64_t i = 0; i < (uint64_t)requests_per_thread; i++) {
        uint64_t length = (i * 0x9e3779b97f4a7c15u) >> 54;
        atomic_fetch_add_explicit(&mine->requests, 1, memory_order_relaxed);
        atomic_fetch_add_explicit(&mine->bytes, length, memory_order_relaxed);
    }
    return NULL;
}

int main(int argc, char **argv) {
    long threads = argc > 1 ? atol(argv[1]) : 2;
    if (argc > 2) requests_per_thread = atol(argv[2]);
    if (threads < 1 || threads > MAX_THREADS || requests_per_thread < 0) {
        fprintf(stderr, "usage: demo [THREADS (1-%d) [REQUESTS]]\n", MAX_THREADS);
        return 2;
    }
    pthread_t thread[MAX_THREADS];
    pthread_barrier_init(&everyone_is_here, NULL, (unsigned)threads);
    for (long i = 0; i < threads; i++)
        pthread_create(&thread[i], NULL, serve, &stats[i]);
    uint64_t requests = 0, bytes = 0;
    for (long i = 0; i < threads; i++) {
        pthread_join(thread[i], NULL);
        requests += stats[i].requests;
        bytes += stats[i].bytes;
    }
    printf("%lu requests, %lu bytes\n", requests, bytes);
    return 0;
}
