/* Threads that compute on falsely shared counters, and do what most programs do beside it: locks,
 * barriers, atomic additions, allocations, a pipe, files. A round ends with a line that says
 * whether all counts are right; the output is the same in every run, and the exit status is 3. It
 * ignores what a closed terminal and `kill` send, so that only its own end ends it.
 * The arguments are the number of rounds and the number of additions in each. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define THREADS 3

static volatile long hot[8] __attribute__((aligned(64)));
static volatile long elsewhere[THREADS][16] __attribute__((aligned(64)));
static _Atomic long together;
static long locked;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_barrier_t meeting;
static long rounds, times;
static int ends[2];
static volatile long *blocks[THREADS];
static int wrong;

static void check(int right, const char *what) {
    if (right) return;
    wrong = 1;
    printf("wrong: %s\n", what);
}

/* What thread 0 alone does between two rounds. */
static void between(long round) {
    char text[64], back[64] = "";
    for (int i = 0; i < THREADS; i++) {
        check(hot[i] == times, "a count");
        check(blocks[i][0] == times, "a count on the heap");
        hot[i] = 0;
    }
    check(atomic_exchange(&together, 0) == THREADS * (times / 64 + 1), "an atomic count");
    check(locked == THREADS * (times / 4096 + 1), "a count under a lock");
    locked = 0;
    int length = snprintf(text, sizeof text, "round %ld is over\n", round);
    check(write(ends[1], text, length) == length, "a write to a pipe");
    check(read(ends[0], back, sizeof back) == length, "a read from a pipe");
    check(strcmp(text, back) == 0, "what came through the pipe");
    fputs(back, stdout);
    fflush(stdout);
}

static void *work(void *argument) {
    long own = (long)argument;
    for (long round = 0; round < rounds; round++) {
        volatile long *block = calloc(2 + own, sizeof(long));
        blocks[own] = block;
        pthread_barrier_wait(&meeting);
        for (long i = 0; i < times; i++) {
            hot[own]++;
            elsewhere[own][i % 16] = i;
            block[0]++;
            if (i % 64 == 0) atomic_fetch_add(&together, 1);
            if (i % 4096 == 0) {
                pthread_mutex_lock(&lock);
                locked++;
                pthread_mutex_unlock(&lock);
            }
        }
        if (times % 64 == 0) atomic_fetch_add(&together, 1);
        if (times % 4096 == 0) {
            pthread_mutex_lock(&lock);
            locked++;
            pthread_mutex_unlock(&lock);
        }
        pthread_barrier_wait(&meeting);
        if (own == 0) between(round);
        pthread_barrier_wait(&meeting);
        free((void *)block);
    }
    return NULL;
}

int main(int count, char **arguments) {
    signal(SIGTERM, SIG_IGN);
    signal(SIGHUP, SIG_IGN);
    rounds = count > 1 ? atol(arguments[1]) : 4;
    times = count > 2 ? atol(arguments[2]) : 1 << 20;
    pthread_t threads[THREADS];
    pthread_barrier_init(&meeting, NULL, THREADS);
    if (pipe(ends) != 0) return 99;
    for (long i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, work, (void *)i) != 0) return 98;
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    puts(wrong ? "not right" : "all right");
    return wrong ? 4 : 3;
}
