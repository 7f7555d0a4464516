/* Two threads whose counters share a line and are only reached by calls: through a table of
 * functions in the object, to a library that is linked, and to the kernel now and then.
 * The argument says how often. */
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

struct counter;

struct functions {
    void (*nothing)(struct counter *);
    void (*count)(struct counter *, uint64_t);
};

struct counter {
    const struct functions *functions;
    uint64_t sum;
    uint64_t calls;
};

static void nothing(struct counter *counter) { (void)counter; }

static void count(struct counter *counter, uint64_t by) {
    counter->sum += by;
    counter->calls++;
}

static const struct functions functions = {nothing, count};

/* The counters of both lie on one line. */
static struct {
    struct counter of[2];
} counters __attribute__((aligned(64))) = {{{&functions, 0, 0}, {&functions, 0, 0}}};

static long rounds;

static void *work(void *argument) {
    struct counter *counter = argument;
    unsigned seed = 1;
    for (long i = 0; i < rounds; i++) {
        counter->functions->count(counter, (uint64_t)rand_r(&seed) & 7);
        if (i % 4096 == 0) sched_yield();
    }
    return NULL;
}

int main(int argc, char **argv) {
    pthread_t threads[2];
    rounds = argc > 1 ? atol(argv[1]) : 1000000;
    for (int i = 0; i < 2; i++) pthread_create(&threads[i], NULL, work, &counters.of[i]);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < 2; i++)
        printf("%llu %llu\n", (unsigned long long)counters.of[i].sum,
               (unsigned long long)counters.of[i].calls);
    return 0;
}
