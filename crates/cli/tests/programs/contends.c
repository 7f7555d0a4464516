/* Two threads count side by side on one line, and now and then make a call that waits. Nothing sends a
 * signal, so no wait may end early with EINTR. Prints what was counted and how many waits were
 * interrupted. */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <time.h>

static struct { volatile long count[2]; long pad[6]; } __attribute__((aligned(64))) shared;
static long rounds, interrupted;

static void *count(void *which) {
    volatile long *mine = &shared.count[(long)which];
    int epoll = epoll_create1(0);
    sem_t never;
    sem_init(&never, 0, 0);
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    struct epoll_event event;
    for (long round = 0; round < rounds; round++) {
        for (long i = 0; i < 1000000; i++) ++*mine;
        struct timespec pause = {0, 300000}, until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += 300000;
        if (until.tv_nsec >= 1000000000) until.tv_sec++, until.tv_nsec -= 1000000000;
        int failed = 0;
        errno = 0;
        switch (round % 5) {
        case 0: failed = nanosleep(&pause, 0); break;
        case 1: failed = poll(0, 0, 1); break;
        case 2: failed = epoll_wait(epoll, &event, 1, 1); break;
        case 3: failed = sem_timedwait(&never, &until); break;
        case 4: failed = sigtimedwait(&set, 0, &pause); break;
        }
        if (failed && errno == EINTR) __atomic_fetch_add(&interrupted, 1, __ATOMIC_RELAXED);
    }
    return 0;
}

int main(int argc, char **argv) {
    rounds = argc > 1 ? atol(argv[1]) : 100;
    pthread_t threads[2];
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &set, 0);
    for (long i = 0; i < 2; i++) pthread_create(&threads[i], 0, count, (void *)i);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], 0);
    printf("%ld %ld, interrupted %ld\n", shared.count[0], shared.count[1], interrupted);
    return 3;
}
