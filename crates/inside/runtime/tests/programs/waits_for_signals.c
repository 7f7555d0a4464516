/* Blocks every signal and waits for them with sigwait and its relatives, while
 * it uses CPU time. */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>
static void work(void) {
    struct timespec t, start;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &start);
    do clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    while ((t.tv_sec - start.tv_sec) * 1000000000 + t.tv_nsec - start.tv_nsec < 30000000);
}
int main(void) {
    sigset_t all;
    siginfo_t info;
    int s;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, NULL);
    work();
    raise(SIGUSR1);
    if (sigwait(&all, &s) || s != SIGUSR1) { printf("sigwait gave %d\n", s); return 1; }
    work();
    raise(SIGUSR2);
    if (sigwaitinfo(&all, &info) != SIGUSR2) return 2;
    work();
    struct timespec none = {0, 0};
    if (sigtimedwait(&all, &info, &none) != -1 || errno != EAGAIN) { printf("sigtimedwait gave %d\n", info.si_signo); return 3; }
    int fd = signalfd(-1, &all, SFD_NONBLOCK);
    struct signalfd_siginfo got;
    if (read(fd, &got, sizeof got) != -1) { printf("signalfd gave %u\n", got.ssi_signo); return 4; }
    return 0;
}
