/* Two threads that write to known addresses of one line for some 300 ms, each by
 * its own code; prints the addresses first. Samples of a loop can all fall on one
 * of its instructions, so the accesses must be exact from each of them, unoptimised
 * too: pointer and counter are in registers, and the loop is one basic block. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <time.h>

static _Alignas(64) struct {
    volatile uint32_t narrow;
    uint32_t gap;
    volatile uint64_t wide;
} line;

static int over(const struct timespec *begin) {
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (now.tv_sec - begin->tv_sec) * 1000000000L + now.tv_nsec - begin->tv_nsec > 300000000L;
}

static void *narrow(void *p) {
    struct timespec begin;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &begin);
    register volatile uint32_t *address = p;
    while (!over(&begin)) {
        register int left = 100000;
        do
            (*address)++;
        while (--left);
    }
    return 0;
}

static void *wide(void *p) {
    struct timespec begin;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &begin);
    register uint64_t *address = p;
    while (!over(&begin)) {
        register int left = 100000;
        do
            __atomic_fetch_add(address, 1, __ATOMIC_SEQ_CST);
        while (--left);
    }
    return 0;
}

int main(void) {
    pthread_t threads[2];
    printf("%p %p\n", (void *)&line.narrow, (void *)&line.wide);
    fflush(stdout);
    pthread_create(&threads[0], 0, narrow, (void *)&line.narrow);
    pthread_create(&threads[1], 0, wide, (void *)&line.wide);
    pthread_join(threads[0], 0);
    pthread_join(threads[1], 0);
    return 7;
}
