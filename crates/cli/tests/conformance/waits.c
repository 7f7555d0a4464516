/* Every real-time signal is blocked, shown as blocked, sent in each way, and waited for. */
#include "check.h"
#include <sys/signalfd.h>
#include <sys/syscall.h>

static sigset_t real_time, ends;

/* Works meanwhile, with everything blocked: such threads must not get what others wait for. */
static void *work(void *number) {
    sigset_t now, all;
    DO(pthread_sigmask(SIG_BLOCK, NULL, &now));
    for (int s = SIGRTMIN; s <= SIGRTMAX; s++) CHECK(sigismember(&now, s) == 1);
    CHECK(sigfillset(&all) == 0);
    DO(pthread_sigmask(SIG_BLOCK, &all, NULL));
    heat((long)number, 200000 * scale);
    return NULL;
}

/* Waits for `count` signals of each kind, and adds the values that came with them. */
static void *wait_for_all(void *wanted) {
    long count = (long)wanted * (SIGRTMAX - SIGRTMIN + 1), sum = 0;
    struct timespec limit = {30, 0};
    for (long i = 0; i < count; i++) {
        siginfo_t info;
        int signal;
        if (i % 3 == 0) {
            DO(sigwait(&real_time, &signal));
            continue;
        }
        signal = i % 3 == 1 ? sigwaitinfo(&real_time, &info) : sigtimedwait(&real_time, &info, &limit);
        CHECK(signal >= SIGRTMIN && signal <= SIGRTMAX && info.si_signo == signal);
        CHECK(info.si_code == SI_QUEUE || info.si_code == SI_USER || info.si_code == SI_TKILL);
        sum += info.si_code == SI_QUEUE && info.si_value.sival_int != signal;
    }
    return (void *)sum;
}

static void send_all(pthread_t waiting) {
    for (int s = SIGRTMAX; s >= SIGRTMIN; s--) {
        CHECK(kill(getpid(), s) == 0);
        CHECK(sigqueue(getpid(), s, (union sigval){.sival_int = s}) == 0);
        DO(pthread_kill(waiting, s));
    }
}

/* The program's own timer, with the signal that ours may have had. */
static void own_timer(void) {
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMAX - 1};
    event.sigev_value.sival_int = 77;
    timer_t timer;
    CHECK(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0);
    struct itimerspec once = {.it_value = {0, 1000000}};
    CHECK(timer_settime(timer, 0, &once, NULL) == 0);
    siginfo_t info;
    CHECK(sigwaitinfo(&real_time, &info) == SIGRTMAX - 1);
    CHECK(info.si_code == SI_TIMER && info.si_value.sival_int == 77);
    CHECK(timer_delete(timer) == 0);
}

/* Nothing comes: the time that a wait takes is the one that was asked for. */
static void nothing_comes(void) {
    struct timespec before, after, limit = {0, 20000000};
    clock_gettime(CLOCK_MONOTONIC, &before);
    CHECK(sigtimedwait(&real_time, NULL, &limit) == -1 && errno == EAGAIN);
    clock_gettime(CLOCK_MONOTONIC, &after);
    CHECK((after.tv_sec - before.tv_sec) * 1000000000L + after.tv_nsec - before.tv_nsec >= 20000000);
}

static void by_descriptor(void) {
    sigset_t one;
    sigemptyset(&one);
    sigaddset(&one, SIGRTMAX - 1);
    int fd = signalfd(-1, &one, 0);
    CHECK(fd >= 0 && kill(getpid(), SIGRTMAX - 1) == 0);
    struct signalfd_siginfo info;
    CHECK(read(fd, &info, sizeof info) == sizeof info && info.ssi_signo == (unsigned)SIGRTMAX - 1);
    close(fd);
}

int main(int argc, char **argv) {
    arguments(argc, argv);
    sigemptyset(&real_time);
    for (int s = SIGRTMIN; s <= SIGRTMAX; s++) sigaddset(&real_time, s);
    DO(pthread_sigmask(SIG_BLOCK, &real_time, NULL));
    CHECK(sigprocmask(SIG_BLOCK, NULL, &ends) == 0 && sigismember(&ends, SIGRTMAX - 1) == 1);
    pthread_t workers[THREADS], waiting;
    for (long i = 0; i < THREADS; i++) DO(pthread_create(&workers[i], NULL, work, (void *)i));
    nothing_comes();
    DO(pthread_create(&waiting, NULL, wait_for_all, (void *)3));
    send_all(waiting);
    void *wrong;
    DO(pthread_join(waiting, &wrong));
    CHECK(wrong == NULL);
    own_timer();
    by_descriptor();
    for (long i = 0; i < THREADS; i++) DO(pthread_join(workers[i], NULL));
    for (long i = 0; i < THREADS; i++) cool(i, 200000 * scale);
    DO(pthread_sigmask(SIG_UNBLOCK, &real_time, NULL));
    CHECK(sigprocmask(SIG_BLOCK, NULL, &ends) == 0 && sigismember(&ends, SIGRTMAX - 1) == 0);
    puts("done");
    return 0;
}
