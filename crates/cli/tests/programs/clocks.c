/* Threads count in a line that they share falsely, and have the clock of their CPU time written
 * beside it: by clock_gettime, which the vDSO begins and the kernel ends. Says how often a call
 * failed. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>

struct part {
    long count;
    struct timespec used;
};

static struct part parts[2] __attribute__((aligned(64)));
static long rounds;

static void *run(void *part) {
    struct part *mine = part;
    long failed = 0;
    for (long i = 0; i < rounds; i++) {
        for (int k = 0; k < 100000; k++)
            __atomic_fetch_add(&mine->count, 1, __ATOMIC_RELAXED);
        mine->used.tv_nsec = -1;
        int wrong = clock_gettime(CLOCK_THREAD_CPUTIME_ID, &mine->used);
        wrong |= mine->used.tv_nsec < 0;
        wrong |= clock_getres(CLOCK_PROCESS_CPUTIME_ID, &mine->used);
        wrong |= clock_gettime(CLOCK_MONOTONIC, &mine->used);
        if (wrong && !failed++)
            fprintf(stderr, "round %ld: %s\n", i, strerror(errno));
    }
    return (void *)failed;
}

int main(int count, char **arguments) {
    pthread_t threads[2];
    long failed = 0;
    rounds = count > 1 ? atol(arguments[1]) : 300;
    for (int i = 0; i < 2; i++)
        pthread_create(&threads[i], NULL, run, &parts[i]);
    for (int i = 0; i < 2; i++) {
        void *result;
        pthread_join(threads[i], &result);
        failed += (long)result;
    }
    printf("failed %ld times, counted %ld\n", failed, parts[0].count + parts[1].count);
    return failed != 0;
}
