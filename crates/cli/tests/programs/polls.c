/* Threads add to words that lie beside each other's, and say so by epochs on pages of their own: stored by release
 * stores, which are plain stores on x86-64. The main thread polls all epochs in one loop, without `pause`, and adds
 * up the words. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

enum { THREADS = 2 };

_Alignas(4096) volatile long words[512];
static struct {
    _Alignas(4096) _Atomic long epoch;
} of[THREADS];
static struct {
    _Alignas(4096) _Atomic long epoch;
} seen;
static long epochs, rounds;

static void *run(void *argument) {
    int self = (int)(long)argument;
    for (long e = 1; e <= epochs; e++) {
        for (long i = 0; i < rounds; i++) words[self]++;
        atomic_store_explicit(&of[self].epoch, e, memory_order_release);
        while (atomic_load_explicit(&seen.epoch, memory_order_acquire) < e)
            ;
    }
    return NULL;
}

int main(int argc, char **argv) {
    pthread_t threads[THREADS];
    long wrong = 0;
    if (argc != 3) return 2;
    epochs = atol(argv[1]);
    rounds = atol(argv[2]);
    for (long i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, run, (void *)i);
    for (long e = 1; e <= epochs; e++) {
        int all;
        do {
            all = 1;
            for (int i = 0; i < THREADS; i++)
                all &= atomic_load_explicit(&of[i].epoch, memory_order_acquire) >= e;
        } while (!all);
        long sum = 0;
        for (int i = 0; i < THREADS; i++) sum += words[i];
        wrong += sum != e * rounds * THREADS;
        atomic_store_explicit(&seen.epoch, e, memory_order_release);
    }
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    printf("wrong %ld\n", wrong);
    return 0;
}
