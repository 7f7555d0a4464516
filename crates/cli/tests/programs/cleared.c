/* Threads that clear their records and copy them by string instructions, in place of a compiler's
 * choice, while all records lie on one line. Now and then a timer's signal comes, at any instruction.
 * In the end the main thread copies all records at once, from before the first one on. The argument
 * says how often they do it. */
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>

#define THREADS 2

struct record {
    uint64_t seen, sum, last;
};

/* The records lie on one line, and nothing else on their page. */
static struct {
    struct record of[THREADS];
    char rest[4096 - THREADS * sizeof(struct record)];
} records __attribute__((aligned(4096)));

static long rounds;
static uint64_t totals[THREADS][16];
static volatile sig_atomic_t ticks;

static void tick(int signal) {
    (void)signal;
    ticks = ticks + 1;
}

static void clear(struct record *record) {
    void *to = record;
    unsigned long count = sizeof *record / 8;
    __asm__ volatile("rep stosq" : "+D"(to), "+c"(count) : "a"(0UL) : "memory");
}

static void copy(void *to, const void *from, unsigned long count) {
    __asm__ volatile("rep movsq" : "+D"(to), "+S"(from), "+c"(count) : : "memory");
}

static void *work(void *argument) {
    long own = (long)argument;
    struct record *record = &records.of[own], kept;
    uint64_t total = 0;
    for (long i = 0; i < rounds; i++) {
        clear(record);
        for (int k = 0; k < 12; k++) {
            record->seen++;
            record->sum += (uint64_t)(i ^ k);
            record->last = record->sum * 3;
            __asm__ volatile("" ::: "memory");
        }
        copy(&kept, record, sizeof kept / 8);
        total += kept.seen + kept.sum + kept.last;
    }
    totals[own][0] = total;
    return NULL;
}

int main(int argc, char **argv) {
    pthread_t threads[THREADS];
    struct sigaction action = {.sa_handler = tick, .sa_flags = SA_RESTART};
    struct itimerval often = {{0, 500}, {0, 500}};
    static char all[sizeof records.of] __attribute__((aligned(64)));
    rounds = argc > 1 ? atol(argv[1]) : 1000000;
    sigaction(SIGPROF, &action, NULL);
    setitimer(ITIMER_PROF, &often, NULL);
    for (long i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, work, (void *)i);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    copy(all, &records, sizeof all / 8);
    for (int i = 0; i < THREADS; i++) {
        const struct record *record = (const void *)(all + i * sizeof *record);
        printf("%llu %llu %llu\n", (unsigned long long)totals[i][0], (unsigned long long)record->sum,
               (unsigned long long)record->last);
    }
    return ticks == 0;
}
