/* Signals to threads and to the process, masks, alternate stacks, waiting for
 * signals, timers, and jumps out of handlers. */
#include "check.h"
#include <setjmp.h>
#include <sys/time.h>

static volatile long got[THREADS], ticks, outside;
static __thread long self = -1;
static __thread sigjmp_buf back;
static pthread_barrier_t together;
static volatile int stop;

static void count(int signal, siginfo_t *info, void *context) {
    int saved = errno;
    CHECK(signal == SIGUSR1 && info->si_pid == getpid() && context != NULL);
    CHECK(self >= 0);
    got[self]++;
    errno = saved;
}

static void jump(int signal) {
    (void)signal;
    siglongjmp(back, 1);
}

static void tick(int signal) {
    (void)signal;
    __atomic_fetch_add(&ticks, 1, __ATOMIC_RELAXED);
}

/* On an alternate stack, which does not lie on the thread's. */
static void elsewhere_handler(int signal) {
    char here;
    (void)signal;
    stack_t now;
    CHECK(sigaltstack(NULL, &now) == 0 && now.ss_flags == SS_ONSTACK);
    CHECK(&here > (char *)now.ss_sp && &here < (char *)now.ss_sp + now.ss_size);
    __atomic_fetch_add(&outside, 1, __ATOMIC_RELAXED);
}

static void *receive(void *number) {
    self = (long)number;
    stack_t stack = {.ss_sp = malloc(1 << 16), .ss_size = 1 << 16};
    CHECK(sigaltstack(&stack, NULL) == 0);
    sigset_t usr2, old;
    sigemptyset(&usr2);
    sigaddset(&usr2, SIGUSR2);
    DO(pthread_sigmask(SIG_BLOCK, &usr2, &old));
    pthread_barrier_wait(&together);
    errno = 4711;
    while (!stop) heat(self, 1000);
    CHECK(errno == 4711);
    /* The signal was blocked, so it is pending for this thread alone, and can be taken. */
    sigset_t pending;
    CHECK(sigpending(&pending) == 0 && sigismember(&pending, SIGUSR2) == (self == 1));
    if (self == 1) {
        int signal;
        DO(sigwait(&usr2, &signal));
        CHECK(signal == SIGUSR2);
    }
    DO(pthread_sigmask(SIG_SETMASK, &old, NULL));
    volatile int jumped = 0;
    if (sigsetjmp(back, 1) == 0) DO(pthread_kill(pthread_self(), SIGALRM));
    else jumped = 1;
    CHECK(jumped);
    CHECK(raise(SIGHUP) == 0);
    stack.ss_flags = SS_DISABLE;
    CHECK(sigaltstack(&stack, NULL) == 0);
    free(stack.ss_sp);
    return NULL;
}

int main(int argc, char **argv) {
    arguments(argc, argv);
    struct sigaction action = {.sa_sigaction = count, .sa_flags = SA_SIGINFO | SA_RESTART};
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    struct sigaction jumping = {.sa_handler = jump}, ticking = {.sa_handler = tick, .sa_flags = SA_RESTART};
    struct sigaction high = {.sa_handler = elsewhere_handler, .sa_flags = SA_ONSTACK};
    CHECK(sigaction(SIGALRM, &jumping, NULL) == 0 && sigaction(SIGPROF, &ticking, NULL) == 0);
    CHECK(sigaction(SIGHUP, &high, NULL) == 0);
    DO(pthread_barrier_init(&together, NULL, THREADS + 1));
    pthread_t thread[THREADS];
    for (long i = 0; i < THREADS; i++) DO(pthread_create(&thread[i], NULL, receive, (void *)i));
    pthread_barrier_wait(&together);
    struct itimerval often = {{0, 5000}, {0, 5000}}, never = {{0, 0}, {0, 0}};
    CHECK(setitimer(ITIMER_PROF, &often, NULL) == 0);
    long sent[THREADS] = {0};
    for (long i = 0; i < 200 * scale; i++) {
        long to = i % THREADS;
        long seen = got[to];
        DO(pthread_kill(thread[to], SIGUSR1));
        while (got[to] == seen) sched_yield();
        sent[to]++;
    }
    while (ticks < 3) sched_yield();
    CHECK(setitimer(ITIMER_PROF, &never, NULL) == 0);
    DO(pthread_kill(thread[1], SIGUSR2));
    stop = 1;
    for (long i = 0; i < THREADS; i++) DO(pthread_join(thread[i], NULL));
    for (long i = 0; i < THREADS; i++) CHECK(got[i] == sent[i]);
    printf("%ld signals, each in its thread; on a stack apart %ld\n", 200 * scale, outside);
    return 0;
}
