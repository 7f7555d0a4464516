/* Two threads whose state machines share a line: each machine has a pointer to the function of its
 * present state, and the functions choose the next one. Now and then a timer's signal comes, at any
 * instruction. The argument says how often the machines step. */
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>

struct machine {
    void (*step)(struct machine *, unsigned);
    uint64_t sum;
    uint64_t turns;
};

static void first(struct machine *, unsigned);
static void second(struct machine *, unsigned);
static void third(struct machine *, unsigned);

static void first(struct machine *m, unsigned input) {
    m->sum += input;
    if (input == 3) m->step = second;
}

static void second(struct machine *m, unsigned input) {
    m->sum ^= input << 4;
    m->step = input & 1 ? third : first;
}

static void third(struct machine *m, unsigned input) {
    m->turns++;
    if (input == 6) m->step = first;
}

/* Both lie on one line, and nothing else on their page. */
static struct {
    struct machine of[2];
    char rest[4096 - 2 * sizeof(struct machine)];
} machines __attribute__((aligned(4096))) = {{{first, 0, 0}, {first, 0, 0}}, {0}};

static long rounds;
static volatile sig_atomic_t ticks;

static void tick(int signal) {
    (void)signal;
    ticks = ticks + 1;
}

static void *work(void *argument) {
    static const unsigned char inputs[] = {0, 3, 1, 2, 6, 5, 3, 7, 6, 1};
    struct machine *m = argument;
    for (long i = 0; i < rounds; i++) m->step(m, inputs[i % 10]);
    return NULL;
}

int main(int argc, char **argv) {
    pthread_t threads[2];
    struct sigaction action = {.sa_handler = tick, .sa_flags = SA_RESTART};
    struct itimerval often = {{0, 500}, {0, 500}};
    rounds = argc > 1 ? atol(argv[1]) : 1000000;
    sigaction(SIGPROF, &action, NULL);
    setitimer(ITIMER_PROF, &often, NULL);
    for (int i = 0; i < 2; i++) pthread_create(&threads[i], NULL, work, &machines.of[i]);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < 2; i++)
        printf("%llu %llu\n", (unsigned long long)machines.of[i].sum,
               (unsigned long long)machines.of[i].turns);
    return ticks == 0;
}
