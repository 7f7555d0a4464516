/* A server that counts requests, with one atomic counter for each worker so
 * that the workers need no lock. The counters are one array from calloc, eight
 * bytes each, so the counters of up to eight workers are on one cache line. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#if FIXED
enum { STRIDE = 64 / sizeof(atomic_ulong) };
#else
enum { STRIDE = 1 };
#endif
enum { MAX_THREADS = 64, ROUTES = 32 };

static atomic_ulong *served;
static long requests;

struct worker {
    pthread_t thread;
    int id;
    uint64_t digest;
};

/* Finds the route of a request: a hash over the path. */
static uint32_t route_of(uint64_t request) {
    uint32_t hash = 2166136261u;
    for (int i = 0; i < 4; i++) {
        hash = (hash ^ (request & 0xff)) * 16777619u;
        request >>= 8;
    }
    return hash % ROUTES;
}

static void *serve(void *argument) {
    struct worker *worker = argument;
    uint32_t by_route[ROUTES] = {0};
    for (long i = 0; i < requests; i++) {
        by_route[route_of((uint64_t)i * 0x9e3779b9u)]++;
        atomic_fetch_add_explicit(&served[worker->id * STRIDE], 1, memory_order_relaxed);
    }
    uint64_t digest = 0;
    for (int r = 0; r < ROUTES; r++)
        digest = digest * 31 + by_route[r];
    worker->digest = digest;
    return NULL;
}

int main(int argc, char **argv) {
    int threads = argc > 1 ? atoi(argv[1]) : 4;
    requests = argc > 2 ? atol(argv[2]) : 18000000;
    if (threads < 1 || threads > MAX_THREADS || requests < 1) {
        fprintf(stderr, "usage: %s THREADS REQUESTS\n", argv[0]);
        return 2;
    }
#if FIXED
    served = aligned_alloc(64, (size_t)threads * 64);
    for (int t = 0; t < threads; t++)
        atomic_init(&served[t * STRIDE], 0);
#else
    served = calloc((size_t)threads, sizeof *served);
#endif
    struct worker *workers = calloc((size_t)threads, sizeof *workers);
    for (int t = 0; t < threads; t++) {
        workers[t].id = t;
        pthread_create(&workers[t].thread, NULL, serve, &workers[t]);
    }
    uint64_t sum = 0;
    for (int t = 0; t < threads; t++) {
        pthread_join(workers[t].thread, NULL);
        sum = sum * 31 + workers[t].digest + atomic_load(&served[t * STRIDE]);
    }
    printf("checksum %016lx\n", (unsigned long)sum);
    free(workers);
    free(served);
    return 0;
}
