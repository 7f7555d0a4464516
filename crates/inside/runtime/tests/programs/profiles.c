/* Uses SIGPROF and SIGSEGV itself. */
#define _GNU_SOURCE
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <sys/time.h>
static volatile sig_atomic_t ticks;
static sigjmp_buf back;
static void tick(int s) { if (s == SIGPROF) ticks++; }
static void fault(int s, siginfo_t *i, void *c) { (void)s; (void)c; if (i->si_addr == (void *)16) siglongjmp(back, 1); }
static void *spin(void *a) { while (ticks < 20) {} return a; }
int main(void) {
    pthread_t t;
    struct sigaction a = {.sa_handler = tick}, b = {.sa_sigaction = fault, .sa_flags = SA_SIGINFO}, old;
    if (sigaction(SIGPROF, &a, &old) || old.sa_handler != SIG_DFL) return 1;
    if (sigaction(SIGSEGV, &b, &old) || old.sa_handler != SIG_DFL) return 2;
    struct itimerval every = {{0, 1000}, {0, 1000}};
    setitimer(ITIMER_PROF, &every, NULL);
    pthread_create(&t, NULL, spin, NULL);
    spin(NULL);
    pthread_join(t, NULL);
    volatile int hit = 0;
    if (!sigsetjmp(back, 1)) *(volatile int *)16 = 1; else hit = 1;
    return hit ? 0 : 3;
}
