/* Sends the signal by which bytes are moved to a thread of its own that waits in the kernel: it
 * must not end any wait early, but a signal of the program's own must. */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static const unsigned long BELL = 0x53554e4442454c4c;
static volatile pid_t waiter;
static volatile int step, done;
static int wrong;

static void ring(pid_t thread) {
    siginfo_t info;
    memset(&info, 0, sizeof info);
    info.si_signo = SIGSEGV;
    info.si_code = SI_QUEUE;
    info.si_pid = getpid();
    info.si_value.sival_ptr = (void *)BELL;
    syscall(SYS_rt_tgsigqueueinfo, getpid(), thread, SIGSEGV, &info);
}

static void *ringer(void *unused) {
    (void)unused;
    /* Few enough that a wait which is restarted each time comes to its end. */
    for (int at = -1; !done;) {
        if (at != step) {
            at = step;
            for (int i = 0; i < 15; i++) {
                usleep(2000);
                ring(waiter);
            }
        }
        usleep(1000);
    }
    return NULL;
}

static void on_signal(int signal) { (void)signal; }

static void check(const char *what, int is_right) {
    printf("%s %s\n", what, is_right ? "right" : "wrong");
    wrong += !is_right;
    step++;
}

static void *interrupter(void *unused) {
    (void)unused;
    /* Sent until the wait has ended, for a signal may arrive before the wait begins. */
    for (int at = step; at == step;) {
        usleep(20000);
        syscall(SYS_tgkill, getpid(), waiter, SIGUSR1);
    }
    return NULL;
}

int main(void) {
    struct timespec time = {0, 50000000};
    struct sigaction action = {.sa_handler = on_signal};
    sigaction(SIGUSR1, &action, NULL);
    waiter = syscall(SYS_gettid);
    pthread_t thread, second;
    pthread_create(&thread, NULL, ringer, NULL);
    check("poll", poll(NULL, 0, 50) == 0);
    check("nanosleep", nanosleep(&time, NULL) == 0);
    struct timeval wait = {0, 50000};
    check("select", select(0, NULL, NULL, NULL, &wait) == 0);
    int events = epoll_create1(0);
    struct epoll_event event;
    check("epoll_wait", epoll_wait(events, &event, 1, 50) == 0);
    sem_t semaphore;
    sem_init(&semaphore, 0, 0);
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += 50000000;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    check("sem_timedwait", sem_timedwait(&semaphore, &until) == -1 && errno == ETIMEDOUT);
    check("syscall", syscall(SYS_poll, NULL, 0, 50) == 0);
    pthread_create(&second, NULL, interrupter, NULL);
    check("interrupted", poll(NULL, 0, -1) == -1 && errno == EINTR);
    pthread_join(second, NULL);
    pthread_create(&second, NULL, interrupter, NULL);
    check("pause", pause() == -1 && errno == EINTR);
    pthread_join(second, NULL);
    done = 1;
    pthread_join(thread, NULL);
    return wrong != 0;
}
