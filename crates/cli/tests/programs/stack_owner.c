/* A thread whose stack holds what others share falsely goes on in every way that there is, while the
   bytes may be at another place: its wait ends, or its time, a handler runs on its stack or on one for
   signals, jumps or asks where it is, it is cancelled, or another thread makes a process. It uses its
   variables afterwards, and every handler says whether it ran on the stack that it belongs to. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { THREADS = 2 };

struct slots {
    volatile unsigned long of[8];
};

struct work {
    struct slots *slots;
    int which;
    volatile int *stop;
    sem_t *done;
    unsigned long rounds;
    unsigned long counted;
};

static long rounds;
static uintptr_t low, high; /* of the owner's stack */
static volatile sig_atomic_t handled, elsewhere, once, on_signal_stack;
static sigjmp_buf back;
static volatile int jumps;
static sem_t done; /* not in the frame: a wait for a word there keeps it where it is */
static char signal_stack[1 << 16];

static void *count(void *argument) {
    struct work *work = argument;
    unsigned long n = 0;
    while (n < work->rounds || (work->stop && !*work->stop)) {
        work->slots->of[work->which]++;
        work->slots->of[work->which] += n & 3;
        n++;
    }
    work->counted = n;
    if (work->done) sem_post(work->done);
    return NULL;
}

static unsigned long wanted(unsigned long n) {
    return n + n / 4 * 6 + (n % 4 > 1 ? n % 4 * (n % 4 - 1) / 2 : 0);
}

static void handler(int signal, siginfo_t *info, void *context) {
    char here;
    uintptr_t at = (uintptr_t)&here;
    int on_it = at > (uintptr_t)signal_stack && at < (uintptr_t)signal_stack + sizeof signal_stack;
    handled++;
    if (on_it) on_signal_stack++;
    else if (at < low || at > high) elsewhere++;
    if (info->si_signo != signal) elsewhere++;
    (void)context;
    if (jumps) siglongjmp(back, 1);
}

static void handle(int signal, int flags) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_sigaction = handler;
    action.sa_flags = SA_SIGINFO | flags;
    sigemptyset(&action.sa_mask);
    sigaction(signal, &action, NULL);
}

static void beat(long microseconds) {
    struct itimerval every = {{0, microseconds}, {0, microseconds}};
    setitimer(ITIMER_REAL, &every, NULL);
}

static void learn_stack(void) {
    pthread_attr_t attributes;
    void *start;
    size_t size;
    pthread_getattr_np(pthread_self(), &attributes);
    pthread_attr_getstack(&attributes, &start, &size);
    pthread_attr_destroy(&attributes);
    low = (uintptr_t)start;
    high = low + size;
}

/* The owner's frame: what `mode` does while the others count. */
static __attribute__((noinline)) int own(const char *mode) {
    struct slots slots __attribute__((aligned(64)));
    struct work work[THREADS];
    pthread_t threads[THREADS];
    volatile int stop = 0;
    volatile unsigned long waits = 0, ended = 0, good = 1;
    int is = 0;

    memset((void *)&slots, 0, sizeof slots);
    sem_init(&done, 0, 0);
    learn_stack();
    sigset_t none;
    sigemptyset(&none);
    /* The signals are the owner's alone. */
    sigset_t all, before;
    sigfillset(&all);
    sigdelset(&all, SIGSEGV);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    for (int t = 0; t < THREADS; t++) {
        work[t] = (struct work){&slots, t, NULL, &done, (unsigned long)rounds, 0};
        pthread_create(&threads[t], NULL, count, &work[t]);
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);

    if (strcmp(mode, "join") == 0) {
        is = 1;
    } else if (strcmp(mode, "restart") == 0) {
        handle(SIGALRM, SA_RESTART);
        beat(150000);
        is = 1;
    } else if (strcmp(mode, "interrupt") == 0) {
        handle(SIGALRM, 0);
        beat(150000);
        for (int t = 0; t < THREADS; t++)
            while (sem_wait(&done) != 0)
                if (errno == EINTR) ended++;
        good = handled >= (sig_atomic_t)ended;
        is = 1;
    } else if (strcmp(mode, "sigstack") == 0) {
        stack_t stack = {.ss_sp = signal_stack, .ss_size = sizeof signal_stack};
        sigaltstack(&stack, NULL);
        handle(SIGALRM, SA_RESTART | SA_ONSTACK);
        beat(150000);
        for (int t = 0; t < THREADS; t++) pthread_join(threads[t], NULL);
        beat(0);
        good = on_signal_stack == handled;
        goto joined;
    } else if (strcmp(mode, "once") == 0) {
        handle(SIGALRM, SA_RESTART | (int)SA_RESETHAND);
        struct itimerval after = {{0, 0}, {0, 300000}};
        setitimer(ITIMER_REAL, &after, NULL);
        for (int t = 0; t < THREADS; t++) pthread_join(threads[t], NULL);
        /* The kernel has forgotten the handler, so that it runs where the signal has found the thread. */
        elsewhere = 0;
        goto joined;
    } else if (strcmp(mode, "jump") == 0) {
        handle(SIGALRM, 0);
        jumps = 1;
        beat(200000);
        /* The jump leaves the wait, and the frames below this one. */
        volatile int left = THREADS;
        sigsetjmp(back, 1);
        while (left > 0) {
            waits++;
            if (sem_trywait(&done) == 0) left--;
            else pause();
        }
        jumps = 0;
        beat(0);
        good = handled > 0 && waits > 0;
        is = 1;
    } else if (strcmp(mode, "timed") == 0) {
        int left = THREADS;
        while (left > 0) {
            struct timespec until;
            clock_gettime(CLOCK_REALTIME, &until);
            until.tv_nsec += 100000000;
            if (until.tv_nsec >= 1000000000) until.tv_sec++, until.tv_nsec -= 1000000000;
            if (sem_timedwait(&done, &until) == 0) left--;
            else waits++, ended += slots.of[0] != 0;
        }
        good = ended == waits;
        is = 1;
    } else if (strcmp(mode, "sleep") == 0) {
        struct timespec start, end, time = {1, 0};
        clock_gettime(CLOCK_MONOTONIC, &start);
        while (clock_nanosleep(CLOCK_MONOTONIC, 0, &time, NULL) != 0) ended++;
        clock_gettime(CLOCK_MONOTONIC, &end);
        double took = (double)(end.tv_sec - start.tv_sec) + (double)(end.tv_nsec - start.tv_nsec) / 1e9;
        good = took >= 1.0 && ended == 0;
        is = 1;
    } else if (strcmp(mode, "poll") == 0) {
        /* The time of a wait that is restarted is not begun anew. */
        struct timespec start, end;
        clock_gettime(CLOCK_MONOTONIC, &start);
        usleep(900000);
        clock_gettime(CLOCK_MONOTONIC, &end);
        long took = (end.tv_sec - start.tv_sec) * 1000 + (end.tv_nsec - start.tv_nsec) / 1000000;
        good = took >= 899;
        is = 1;
    } else if (strcmp(mode, "fork") == 0) {
        usleep(500000);
        pid_t child = fork();
        if (child == 0) _exit(slots.of[0] > 0 && slots.of[1] > 0 && work[1].which == 1 ? 7 : 8);
        int status = 0;
        waitpid(child, &status, 0);
        good = WIFEXITED(status) && WEXITSTATUS(status) == 7;
        is = 1;
    }
    if (!is) return 2;
    for (int t = 0; t < THREADS; t++) pthread_join(threads[t], NULL);
    beat(0);
joined:;
    int right = 1;
    for (int t = 0; t < THREADS; t++)
        right &= slots.of[t] == wanted(work[t].counted) && work[t].counted >= work[t].rounds;
    printf("%s: counts %s, handlers elsewhere %d, %s\n", mode, right ? "right" : "wrong", (int)elsewhere,
           good ? "good" : "bad");
    return right && good && !elsewhere ? 0 : 1;
}

/* The owner, which is the first thread, is cancelled in its wait, and cleans up with its variables. */
static struct work cancelled_work[THREADS];
static pthread_t cancelled_threads[THREADS];
static volatile int stop_counting;

static void clean(void *argument) {
    struct slots *slots = argument;
    char here;
    uintptr_t at = (uintptr_t)&here;
    int right = at > low && at < high;
    stop_counting = 1;
    for (int t = 0; t < THREADS; t++) pthread_join(cancelled_threads[t], NULL);
    for (int t = 0; t < THREADS; t++)
        right &= slots->of[t] == wanted(cancelled_work[t].counted);
    printf("cancel: cleaned up %s\n", right ? "with the right counts" : "wrongly");
}

static void *cancel_it(void *argument) {
    void *result = NULL;
    usleep(1200000);
    pthread_cancel(*(pthread_t *)argument);
    pthread_join(*(pthread_t *)argument, &result);
    printf("cancel: cancelled %d\n", result == PTHREAD_CANCELED);
    exit(0);
}

static void be_cancelled(void) {
    struct slots slots __attribute__((aligned(64)));
    static sem_t never;
    static pthread_t self;
    pthread_t other;
    memset((void *)&slots, 0, sizeof slots);
    learn_stack();
    sem_init(&never, 0, 0);
    self = pthread_self();
    for (int t = 0; t < THREADS; t++) {
        cancelled_work[t] = (struct work){&slots, t, &stop_counting, NULL, (unsigned long)rounds, 0};
        pthread_create(&cancelled_threads[t], NULL, count, &cancelled_work[t]);
    }
    pthread_create(&other, NULL, cancel_it, &self);
    pthread_cleanup_push(clean, &slots);
    while (sem_wait(&never) != 0) {}
    pthread_cleanup_pop(0);
}

int main(int argc, char **argv) {
    const char *mode = argc > 1 ? argv[1] : "join";
    rounds = argc > 2 ? atol(argv[2]) : 50000000;
    if (strcmp(mode, "cancel") != 0) return own(mode);
    be_cancelled();
    return 1;
}
