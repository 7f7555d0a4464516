/* Blocks that two threads share falsely, one after the other, each freed when its threads have
 * ended. Between them, blocks at the same address are shared truly: by atomic additions, by a lock,
 * and passed from thread to thread. A wrapper allocates all. Before each block the heap grows, so
 * that the block lies in memory that was not mapped before. */
/* Functions on pages of their own, apart from code that orders memory. */
#define PAGE __attribute__((noinline, aligned(4096)))
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct slot { volatile uint64_t sum, last; };

static long steps;

static void *__attribute__((noinline)) checked_malloc(size_t bytes) {
    void *block = malloc(bytes);
    if (!block) abort();
    return block;
}

PAGE static void *own(void *at) {
    struct slot *slot = at;
    volatile uint64_t journal[64];
    for (long i = 0; i < steps; i++) {
        journal[i % 64] = i;
        slot->sum += i & 15;
        slot->last = i;
    }
    return NULL;
}

PAGE static void *add(void *at) {
    _Atomic uint64_t *sum = at;
    for (long i = 0; i < steps / 50; i++) atomic_fetch_add(sum, 1);
    return NULL;
}

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void *locked(void *at) {
    volatile uint64_t *both = at;
    for (long i = 0; i < steps / 200; i++) {
        pthread_mutex_lock(&lock);
        both[0] += 1;
        both[1] += both[0] & 1;
        pthread_mutex_unlock(&lock);
    }
    return NULL;
}

static void two(void *(*work)(void *), void *first, void *second) {
    pthread_t threads[2];
    pthread_create(&threads[0], NULL, work, first);
    pthread_create(&threads[1], NULL, work, second);
    pthread_join(threads[0], NULL);
    pthread_join(threads[1], NULL);
}

int main(int argc, char **argv) {
    int rounds = argc > 1 ? atoi(argv[1]) : 3;
    steps = argc > 2 ? atol(argv[2]) : 100000000;
    for (int round = 0; round < rounds; round++) {
        for (int i = 0; round % 2 && i < 40; i++) memset(checked_malloc(60000), i, 60000);
        struct slot *slots = checked_malloc(2 * sizeof *slots + 64 * round);
        slots[0] = slots[1] = (struct slot){round, 0};
        two(own, &slots[0], &slots[1]);
        printf("%lu %lu %lu %lu\n", slots[0].sum, slots[0].last, slots[1].sum, slots[1].last);
        free(slots);
        _Atomic uint64_t *sum = checked_malloc(2 * sizeof *slots);
        *sum = 0;
        two(add, (void *)sum, (void *)sum);
        printf("%lu\n", *sum);
        free((void *)sum);
        uint64_t *both = checked_malloc(2 * sizeof *slots);
        both[0] = both[1] = 0;
        two(locked, both, both);
        printf("%lu %lu\n", both[0], both[1]);
        both = realloc(both, 4096);
        printf("%lu\n", both[0]);
        free(both);
    }
    return 0;
}
