/* Two threads whose counters share a line, on a page with a lock that two others pass to and fro:
 * a read-write lock, or with -DDIES a robust mutex, which each holder leaves locked when it ends.
 * They wait in the kernel for words of that page. The argument says how often the counters are
 * increased. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static struct {
    uint64_t counts[2];
    uint64_t pad[6];
    pthread_rwlock_t lock;
    pthread_mutex_t robust;
    long held;
} shared __attribute__((aligned(4096)));

static long rounds;
static volatile int stop;

static void *count(void *argument) {
    volatile uint64_t *own = argument;
    for (long i = 0; i < rounds; i++) *own += (uint64_t)i & 3;
    return NULL;
}

#if DIES
static int lock(void) {
    int error = pthread_mutex_lock(&shared.robust);
    if (error == EOWNERDEAD) return pthread_mutex_consistent(&shared.robust);
    return error;
}

static void *hold(void *argument) {
    (void)argument;
    if (lock() != 0) abort();
    shared.held++;
    usleep(500);
    return NULL;
}

static void *turns(void *argument) {
    (void)argument;
    while (!stop) {
        pthread_t holder;
        pthread_create(&holder, NULL, hold, NULL);
        usleep(200);
        if (lock() != 0) abort();
        pthread_mutex_unlock(&shared.robust);
        pthread_join(holder, NULL);
        usleep(2000);
    }
    return NULL;
}
#else
static void *turns(void *argument) {
    (void)argument;
    while (!stop) {
        if (pthread_rwlock_wrlock(&shared.lock) != 0) abort();
        shared.held++;
        usleep(500);
        pthread_rwlock_unlock(&shared.lock);
        usleep(3000);
    }
    return NULL;
}
#endif

int main(int argc, char **argv) {
    enum { COUNTERS = 2, ALL = 4 };
    rounds = argc > 1 ? atol(argv[1]) : 100000000;
    pthread_mutexattr_t robust;
    pthread_mutexattr_init(&robust);
    pthread_mutexattr_setrobust(&robust, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&shared.robust, &robust);
    pthread_rwlock_init(&shared.lock, NULL);
    pthread_t threads[ALL];
    int all = COUNTERS;
    for (int i = 0; i < COUNTERS; i++)
        pthread_create(&threads[i], NULL, count, &shared.counts[i]);
#if DIES
    pthread_create(&threads[all++], NULL, turns, NULL);
#else
    while (all < ALL) pthread_create(&threads[all++], NULL, turns, NULL);
#endif
    for (int i = 0; i < COUNTERS; i++) pthread_join(threads[i], NULL);
    stop = 1;
    for (int i = COUNTERS; i < all; i++) pthread_join(threads[i], NULL);
    printf("%llu %llu %d\n", (unsigned long long)shared.counts[0],
           (unsigned long long)shared.counts[1], shared.held > 0);
    return 0;
}
