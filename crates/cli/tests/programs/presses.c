/* Two threads share a line falsely while the first one tells of the signals that it gets, a line
 * for each. `handles`: it handles SIGINT, SIGQUIT, SIGTERM and SIGHUP. `ignores`: it ignores them.
 * `dies`: neither. It ends with 5 a while after its standard input has ended, so that a signal that comes
 * twice is seen, or after a minute. */
#define _GNU_SOURCE
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static struct { volatile long a, b; } shared __attribute__((aligned(64)));
static volatile int enough;
static volatile sig_atomic_t got[NSIG];

static void count(int number) { got[number]++; }

static void *work(void *p) {
    volatile long *mine = p;
    while (!enough)
        for (int i = 0; i < 100000; i++) ++*mine;
    return 0;
}

static void tell(int told[NSIG]) {
    for (int number = 1; number < NSIG; number++)
        while (told[number] < got[number]) printf("%s %d\n", strsignal(number), ++told[number]);
    fflush(stdout);
}

int main(int argc, char **argv) {
    static const int all[] = {SIGINT, SIGQUIT, SIGTERM, SIGHUP};
    struct sigaction action = {.sa_handler = count};
    if (argc < 2) return 1;
    if (*argv[1] == 'i') action.sa_handler = SIG_IGN;
    sigset_t most, before;
    sigfillset(&most);
    sigdelset(&most, SIGSEGV);
    sigprocmask(SIG_BLOCK, &most, &before);
    for (int i = 0; *argv[1] != 'd' && i < 4; i++) sigaction(all[i], &action, 0);
    pthread_t threads[2];
    pthread_create(&threads[0], 0, work, (void *)&shared.a);
    pthread_create(&threads[1], 0, work, (void *)&shared.b);
    sigprocmask(SIG_SETMASK, &before, 0);
    printf("ready\n");
    fflush(stdout);
    int told[NSIG] = {0};
    struct pollfd input = {.fd = 0, .events = POLLIN};
    for (int i = 0; i < 6000 && poll(&input, 1, 10) != 1; i++) tell(told);
    for (int i = 0; i < 30; i++) {
        usleep(10000);
        tell(told);
    }
    enough = 1;
    pthread_join(threads[0], 0);
    pthread_join(threads[1], 0);
    return 5;
}
