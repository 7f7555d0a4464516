/* Threads work on words that lie beside each other's, and wait for each other by flags on pages of their
 * own: stored by release stores, which are plain stores on x86-64, and polled without `pause`. Behind the
 * flags each reads the next one's words. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

enum { THREADS = 2, WORDS = 8 };

_Alignas(4096) volatile long rows[512];
static struct {
    _Alignas(4096) _Atomic long phase;
} flags[THREADS];
static long phases, rounds;
static unsigned long seen[THREADS];

static void wait_for_all(int self, long phase) {
    atomic_store_explicit(&flags[self].phase, phase, memory_order_release);
    for (int other = 0; other < THREADS; other++)
        while (atomic_load_explicit(&flags[other].phase, memory_order_acquire) < phase)
            ;
}

static void *run(void *argument) {
    int self = (int)(long)argument;
    unsigned long sum = 0;
    for (long p = 0; p < phases; p++) {
        for (long i = 0; i < rounds; i++)
            for (int w = 0; w < WORDS; w++)
                rows[w * THREADS + self] += i ^ self;
        wait_for_all(self, 2 * p + 1);
        for (int w = 0; w < WORDS; w++)
            sum = sum * 31 + (unsigned long)rows[w * THREADS + (self + 1) % THREADS];
        wait_for_all(self, 2 * p + 2);
    }
    seen[self] = sum;
    return NULL;
}

int main(int argc, char **argv) {
    if (argc != 3)
        return 2;
    phases = atol(argv[1]);
    rounds = atol(argv[2]);
    pthread_t threads[THREADS];
    for (long t = 0; t < THREADS; t++)
        pthread_create(&threads[t], NULL, run, (void *)t);
    for (int t = 0; t < THREADS; t++)
        pthread_join(threads[t], NULL);
    printf("%lx %lx\n", seen[0], seen[1]);
    return 0;
}
