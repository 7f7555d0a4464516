/* Threads that count on one page, each for a short while and many one after the other, while
 * signals arrive all the time: a terminal's stops at all of the process group, an interval timer's
 * and others at the process, and queued ones at single threads, none of which may be lost.
 * Handlers count on that page too, and some take long. Status 3 and `right` if all counts are
 * right.
 * Usage: rain ROUNDS */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

enum { THREADS = 3, LOOPS = 4000000, SHORT = 100, LONG = 2000000, OUTSTANDING = 20 };

/* A word for each thread, and one for the handlers that run on it. */
volatile unsigned long shared[512] __attribute__((aligned(4096)));
static char beside[4096] __attribute__((aligned(4096), used));
static __thread int own = 100;
static __thread unsigned handled, wanted;
static atomic_ulong wanted_of_handlers;
static atomic_int sent, got, threads_left, over;

/* On pages of their own, on which no instruction orders memory. */
#define ALONE __attribute__((noinline, aligned(4096)))
ALONE static void count(int word, unsigned long loops) {
    for (unsigned long i = 0; i < loops; i++) shared[word]++;
}
ALONE static void after(void) {}

static void on_signal(int signal) {
    int loops = ++handled % 64 ? SHORT : LONG;
    count(own + 256, loops);
    wanted += loops;
    if (signal == SIGRTMIN) atomic_fetch_add(&got, 1);
}

static pthread_mutex_t lock[THREADS];
static pthread_t all[THREADS];
static int lives[THREADS];

static void *compute(void *p) {
    int me = own = (int)(long)p;
    sigset_t mask;
    sigemptyset(&mask);
    if (me == 1) {
        sigaddset(&mask, SIGTSTP);
        sigaddset(&mask, SIGTTIN);
        sigaddset(&mask, SIGTTOU);
    }
    pthread_sigmask(SIG_SETMASK, &mask, 0);
    count(me, LOOPS);
    pthread_mutex_lock(&lock[me]);
    lives[me] = 0;
    pthread_mutex_unlock(&lock[me]);
    /* Signals that are pending for this thread are handled when this call returns. */
    sched_yield();
    sigfillset(&mask);
    pthread_sigmask(SIG_SETMASK, &mask, 0);
    atomic_fetch_add(&wanted_of_handlers, wanted);
    atomic_fetch_sub(&threads_left, 1);
    return p;
}

static void *rain(void *p) {
    int stops[] = {SIGTSTP, SIGTTIN, SIGTTOU};
    struct timespec pause = {0, 200000};
    for (unsigned drop = 0; !atomic_load(&over); drop++) {
        kill(0, stops[drop % 3]);
        if (drop % 5 == 0) kill(getpid(), SIGUSR1);
        for (int i = 0; i < THREADS; i++) {
            pthread_mutex_lock(&lock[i]);
            if (lives[i] && atomic_load(&sent) - atomic_load(&got) < OUTSTANDING &&
                pthread_kill(all[i], SIGRTMIN) == 0)
                atomic_fetch_add(&sent, 1);
            pthread_mutex_unlock(&lock[i]);
        }
        nanosleep(&pause, 0);
    }
    return p;
}

int main(int words, char **word) {
    int rounds = words > 1 ? atoi(word[1]) : 10;
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    sigfillset(&action.sa_mask);
    int handled_ones[] = {SIGTSTP, SIGTTIN, SIGTTOU, SIGUSR1, SIGALRM, SIGRTMIN};
    for (int i = 0; i < 6; i++) sigaction(handled_ones[i], &action, 0);
    for (int i = 0; i < THREADS; i++) pthread_mutex_init(&lock[i], 0);
    /* Only the counting threads handle signals of the process. */
    sigset_t most;
    sigfillset(&most);
    pthread_sigmask(SIG_SETMASK, &most, 0);
    pthread_t clouds;
    pthread_create(&clouds, 0, rain, 0);
    struct itimerval interval = {{0, 700}, {0, 700}};
    setitimer(ITIMER_REAL, &interval, 0);
    for (int round = 0; round < rounds; round++) {
        for (long i = 0; i < THREADS; i++) {
            pthread_mutex_lock(&lock[i]);
            if (pthread_create(&all[i], 0, compute, (void *)i)) abort();
            atomic_fetch_add(&threads_left, 1);
            lives[i] = 1;
            pthread_mutex_unlock(&lock[i]);
        }
        for (int i = 0; i < THREADS; i++) pthread_join(all[i], 0);
    }
    atomic_store(&over, 1);
    pthread_join(clouds, 0);
    int right = sent == got && threads_left == 0;
    unsigned long of_handlers = 0;
    for (int i = 0; i < THREADS; i++) {
        right &= shared[i] == (unsigned long)rounds * LOOPS;
        of_handlers += shared[i + 256];
    }
    right &= of_handlers == wanted_of_handlers && shared[100 + 256] == 0;
    after();
    if (!right) printf("%d of %d signals, %lu %lu %lu, %lu of %lu\n", got, sent, shared[0], shared[1], shared[2], of_handlers, wanted_of_handlers);
    puts(right ? "right" : "wrong");
    return right ? 3 : 1;
}
