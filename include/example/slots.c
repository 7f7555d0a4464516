/* A program that tells `sunder protect` which bytes are private to each thread: adjacent
 * counters, one for each thread. Without Sunder it does the same.
 *
 *   gcc -O1 -pthread -I include include/example/slots.c -o slots
 *   ./slots
 *   sunder protect -- ./slots
 */
#include "sunder.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#define THREADS 2
#define ROUNDS 50
#define LOOPS 20000000

struct slot {
    volatile long count, last;
};
static struct slot *slots;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static long total;

__attribute__((noinline)) static void count(struct slot *own) {
    for (long i = 0; i < LOOPS; i++) {
        own->count++;
        own->last = i;
    }
}

static void *work(void *own) {
    for (int round = 0; round < ROUNDS; round++) {
        count(own);
        pthread_mutex_lock(&lock);
        total++;
        pthread_mutex_unlock(&lock);
    }
    sunder_commit();
    return own;
}

int main(void) {
    pthread_t threads[THREADS];
    slots = aligned_alloc(4096, 4096);
    for (int i = 0; i < THREADS; i++) slots[i] = (struct slot){0};
    fprintf(stderr, "active %d, isolated %d\n", sunder_is_active(), sunder_isolate(slots, THREADS * sizeof *slots));
    for (int i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, work, &slots[i]);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    int was = sunder_share(slots, THREADS * sizeof *slots);
    fprintf(stderr, "shared again %d\n", was);
    for (int i = 0; i < THREADS; i++) printf("%ld %ld\n", slots[i].count, slots[i].last);
    printf("%ld\n", total);
    free(slots);
    return 0;
}
