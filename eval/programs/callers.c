/* Two threads call a function with counters of their own that lie on one line, or apart if the last
 * argument is `fixed`; a third calls the same function with counters that nobody else uses (Plastic,
 * section 6.1: other callers of the same code). Arguments: calls of each of the two, `shared` or
 * `fixed`. Written to standard output: the counts; to standard error: for every CHUNK calls of the
 * third thread the moment in nanoseconds since `main`, and the CPU time that they took. */
#define _GNU_SOURCE 1
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { CHUNK = 1 << 18, STAMPS = 1 << 14, STRIDE = 1 << 12 };

struct counters {
    long calls, sum;
};

static struct counters *at[3];
static long wanted;
static int ended;
static uint64_t began, when[STAMPS], took[STAMPS];
static long stamped, third;

static uint64_t now(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* The code that all three execute. */
static __attribute__((noinline)) void count(struct counters *c, long calls)
{
    for (long i = 0; i < calls; i++) {
        c->calls++;
        c->sum += i;
        __asm__ volatile("" ::: "memory");
    }
}

static void *contend(void *which)
{
    for (long i = 0; i < wanted; i += CHUNK)
        count(at[(long)which], CHUNK);
    return NULL;
}

static void *other(void *which)
{
    while (!__atomic_load_n(&ended, __ATOMIC_RELAXED)) {
        uint64_t before = now(CLOCK_THREAD_CPUTIME_ID);
        count(at[(long)which], CHUNK);
        third += CHUNK;
        if (stamped < STAMPS) {
            took[stamped] = now(CLOCK_THREAD_CPUTIME_ID) - before;
            when[stamped++] = now(CLOCK_MONOTONIC) - began;
        }
    }
    return NULL;
}

int main(int argc, char **argv)
{
    began = now(CLOCK_MONOTONIC);
    wanted = argc == 3 ? atol(argv[1]) : 0;
    if (wanted < 1) {
        fprintf(stderr, "usage: %s CALLS shared|fixed\n", argv[0]);
        return 2;
    }
    int fixed = strcmp(argv[2], "fixed") == 0;
    char *memory = aligned_alloc(STRIDE, 4 * STRIDE);
    memset(memory, 0, 4 * STRIDE);
    at[0] = (struct counters *)memory;
    at[1] = (struct counters *)(memory + (fixed ? STRIDE : (int)sizeof(struct counters)));
    at[2] = (struct counters *)(memory + 3 * STRIDE);
    pthread_t all[3];
    for (long i = 0; i < 3; i++)
        pthread_create(&all[i], NULL, i < 2 ? contend : other, (void *)i);
    for (long i = 0; i < 2; i++)
        pthread_join(all[i], NULL);
    __atomic_store_n(&ended, 1, __ATOMIC_RELAXED);
    pthread_join(all[2], NULL);
    printf("%ld %ld %d\n", at[0]->calls, at[1]->calls, at[2]->calls == third);
    for (long j = 0; j < stamped; j++)
        fprintf(stderr, "%lu %lu\n", (unsigned long)when[j], (unsigned long)took[j]);
    return 0;
}
