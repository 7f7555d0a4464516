/* The beginning of every program here. A program checks itself, prints its results
 * in an order that does not depend on how its threads ran, and exits with status 0
 * (or the one in its row of the table). Its first argument scales its work. Counters
 * of different threads lie side by side in `hot`, so that a remedy against false
 * sharing has something to separate while the program does what
 * it is about. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define THREADS 4

/* Works also in programs that are built without assertions. */
#define CHECK(condition)                                                             \
    do {                                                                             \
        if (!(condition)) {                                                          \
            fprintf(stderr, "%s:%d: %s (errno %d)\n", __FILE__, __LINE__, #condition, errno); \
            _exit(99);                                                               \
        }                                                                            \
    } while (0)

/* For calls that return an error number. */
#define DO(call) CHECK((call) == 0)

/* One line of false sharing. */
static volatile long hot[8] __attribute__((aligned(64)));
static volatile long elsewhere[8][16] __attribute__((aligned(64)));

/* `times` updates of the counter of thread `own`. */
__attribute__((noinline, unused)) static void heat(long own, long times) {
    for (long i = 0; i < times; i++) {
        hot[own]++;
        elsewhere[own][0] = i;
    }
}

/* Checks that no update was lost, and resets the counters. */
__attribute__((unused)) static void cool(long own, long times) {
    CHECK(hot[own] == times);
    hot[own] = 0;
}

static long scale = 1;

__attribute__((unused)) static void arguments(int argc, char **argv) {
    if (argc > 1) scale = atol(argv[1]);
    CHECK(scale > 0);
}

typedef void *(*body)(void *);

/* Runs `function` in THREADS threads, which get their numbers, and waits for them. */
__attribute__((unused)) static void in_threads(body function) {
    pthread_t thread[THREADS];
    for (long i = 0; i < THREADS; i++)
        DO(pthread_create(&thread[i], NULL, function, (void *)i));
    for (long i = 0; i < THREADS; i++) DO(pthread_join(thread[i], NULL));
}

/* The time so many milliseconds from now, by this clock. */
__attribute__((unused)) static struct timespec after(clockid_t clock, long milliseconds) {
    struct timespec t;
    CHECK(clock_gettime(clock, &t) == 0);
    t.tv_nsec += milliseconds % 1000 * 1000000;
    t.tv_sec += milliseconds / 1000 + t.tv_nsec / 1000000000;
    t.tv_nsec %= 1000000000;
    return t;
}
