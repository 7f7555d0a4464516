/* Lists of timers, one list for each thread. The nodes come from a pool in a
 * private mapping, and the timers were added in turn for all threads, so nodes
 * of different threads lie side by side. Each tick updates every node. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

enum { MAX_THREADS = 16, TIMERS = 32 };

struct timer {
    struct timer *next;
    uint32_t left;
    uint32_t period;
    uint32_t fired;
};

#if FIXED
enum { NODE = 64 };
#else
enum { NODE = sizeof(struct timer) };
#endif

static char *pool, *pool_next;
static struct timer *first[MAX_THREADS];
static long ticks;

static struct timer *new_timer(uint32_t period, struct timer *next) {
    struct timer *t = (struct timer *)pool_next;
    pool_next += NODE;
    *t = (struct timer){next, period, period, 0};
    return t;
}

static uint64_t tick(struct timer *list, uint64_t digest) {
    for (struct timer *t = list; t != NULL; t = t->next) {
        if (--t->left == 0) {
            t->left = t->period;
            t->fired++;
            digest = digest * 31 + t->period;
        }
    }
    return digest;
}

static void *run_timers(void *argument) {
    struct timer *list = argument;
    uint64_t digest = 0;
    for (long i = 0; i < ticks; i++)
        digest = tick(list, digest);
    return (void *)(uintptr_t)digest;
}

int main(int argc, char **argv) {
    int threads = argc > 1 ? atoi(argv[1]) : 2;
    ticks = argc > 2 ? atol(argv[2]) : 4000000;
    if (threads < 1 || threads > MAX_THREADS || ticks < 1) {
        fprintf(stderr, "usage: %s THREADS TICKS\n", argv[0]);
        return 2;
    }
    size_t bytes = (size_t)threads * TIMERS * NODE;
    pool = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pool == MAP_FAILED) {
        perror("mmap");
        return 1;
    }
    pool_next = pool;
    for (uint32_t n = 0; n < TIMERS; n++)
        for (int t = 0; t < threads; t++)
            first[t] = new_timer(20 + n * 3 + (uint32_t)t, first[t]);
    pthread_t workers[MAX_THREADS];
    for (int t = 0; t < threads; t++)
        pthread_create(&workers[t], NULL, run_timers, first[t]);
    uint64_t sum = 0;
    for (int t = 0; t < threads; t++) {
        void *digest;
        pthread_join(workers[t], &digest);
        sum = sum * 31 + (uintptr_t)digest;
        for (struct timer *n = first[t]; n != NULL; n = n->next)
            sum = sum * 31 + n->fired;
    }
    printf("checksum %016lx\n", (unsigned long)sum);
    munmap(pool, bytes);
    return 0;
}
