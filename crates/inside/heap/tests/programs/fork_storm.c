/* A timer's signals interrupt one thread again and again while it forks and allocates, and other
 * threads allocate too. The handler allocates what the heap has no fast path for, and of sizes that
 * nobody else asks for: a handler that interrupts a fast path of its own size breaks C's rules. */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { OTHERS = 2, ROUNDS = 300, KEPT = 8 };

static volatile int over;
static char *kept[KEPT];

/* A block is freed by a later signal than the one that made it. */
static void allocates(int signal) {
    static const size_t sizes[] = {5000, 20000, 400000, 34u << 20};
    static unsigned calls;
    int error = errno;
    char **place = &kept[calls % KEPT];
    size_t size = sizes[calls % 4];
    (void)signal;
    if (*place != NULL && ((*place)[0] != 'a' || (*place)[4000] != 'b')) abort();
    free(*place);
    *place = malloc(size);
    if (*place == NULL) abort();
    (*place)[0] = 'a';
    (*place)[4000] = 'b';
    calls++;
    errno = error;
}

static void churn(unsigned seed, int rounds) {
    enum { BLOCKS = 200 };
    char *block[BLOCKS] = {0};
    for (int i = 0; i < rounds; i++) {
        seed = seed * 1103515245u + 12345u;
        unsigned at = seed / 65536u % BLOCKS;
        if (block[at] != NULL && *block[at] != (char)at) abort();
        free(block[at]);
        size_t size = 1 + seed / 256u % 1000u;
        if (i % 8 == 0) size += 70000;
        if (i % 512 == 0) size += 34u << 20;
        block[at] = malloc(size);
        if (block[at] == NULL) abort();
        *block[at] = (char)at;
    }
    for (int i = 0; i < BLOCKS; i++) free(block[i]);
}

static void *other(void *seed) {
    while (!over) churn((unsigned)(unsigned long)seed, 500);
    return NULL;
}

int main(void) {
    pthread_t thread[OTHERS];
    sigset_t alarms;
    struct itimerval often = {{0, 150}, {0, 150}};
    struct itimerspec at_most = {{0, 0}, {60, 0}};
    struct sigevent kill = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGKILL};
    timer_t end;
    if (timer_create(CLOCK_MONOTONIC, &kill, &end) != 0) return 4;
    timer_settime(end, 0, &at_most, NULL);
    sigemptyset(&alarms);
    sigaddset(&alarms, SIGALRM);
    pthread_sigmask(SIG_BLOCK, &alarms, NULL);
    for (long i = 0; i < OTHERS; i++) pthread_create(&thread[i], NULL, other, (void *)(i + 1));
    struct sigaction action = {.sa_handler = allocates, .sa_flags = SA_RESTART};
    sigaction(SIGALRM, &action, NULL);
    pthread_sigmask(SIG_UNBLOCK, &alarms, NULL);
    setitimer(ITIMER_REAL, &often, NULL);
    for (int i = 0; i < ROUNDS; i++) {
        churn((unsigned)i, 300);
        pid_t child = fork();
        if (child == 0) {
            signal(SIGALRM, SIG_DFL);
            alarm(60);
            churn(99, 1000);
            allocates(0);
            _exit(0);
        }
        int status = 0;
        while (child > 0 && waitpid(child, &status, 0) != child)
            if (errno != EINTR) return 3;
        if (child < 0 || status != 0) {
            fprintf(stderr, "child %d ended with %x\n", i, status);
            return 1;
        }
    }
    over = 1;
    for (int i = 0; i < OTHERS; i++) pthread_join(thread[i], NULL);
    puts("ok");
    return 0;
}
