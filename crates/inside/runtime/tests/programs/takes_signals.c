/* Installs a handler for every real-time signal and expects each to be its
 * own. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <time.h>
static volatile sig_atomic_t count[65], foreign;
static void hit(int s, siginfo_t *i, void *c) { (void)c; count[s]++; if (i->si_code == SI_TIMER) foreign = 1; }
static volatile int stop;
static void *spin(void *a) { while (!stop) {} return a; }
static void work(void) {
    struct timespec t;
    do clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t); while (t.tv_sec == 0 && t.tv_nsec < 50000000);
}
int main(void) {
    pthread_t t;
    pthread_create(&t, NULL, spin, NULL);
    work();
    for (int s = SIGRTMIN; s <= SIGRTMAX; s++) {
        struct sigaction a = {.sa_sigaction = hit, .sa_flags = SA_SIGINFO}, old;
        if (sigaction(s, NULL, &old) || old.sa_handler != SIG_DFL) { printf("%d not default\n", s); return 1; }
        if (sigaction(s, &a, &old) || old.sa_handler != SIG_DFL) { printf("%d was taken\n", s); return 2; }
        if (sigaction(s, NULL, &old) || old.sa_sigaction != hit) { printf("%d not set\n", s); return 3; }
        raise(s);
        if (count[s] != 1) { printf("%d came %d times\n", s, (int)count[s]); return 4; }
    }
    struct timespec now;
    do clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now); while (now.tv_sec == 0 && now.tv_nsec < 200000000);
    stop = 1;
    pthread_join(t, NULL);
    return foreign ? 5 : 0;
}
