/* Two threads that share a page falsely all the time, while the first one reads from and writes to
 * the terminal. `WORD`: text that its mappings must show before it is ready, if that is ever so.
 * `handles`: it counts its stops itself, and ends on SIGINT by its own handler. `ignores`: it
 * ignores stops. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

volatile unsigned long shared[512] __attribute__((aligned(4096)));
static unsigned long counted[2];
static volatile int enough;
static volatile sig_atomic_t stops;

static void *count(void *p) {
    volatile unsigned long *mine = &shared[(long)p];
    unsigned long n = 0;
    while (!enough) { (*mine)++; n++; }
    counted[(long)p] = n;
    return 0;
}

static void stop(int number) {
    stops++;
    signal(SIGTSTP, SIG_DFL);
    sigset_t one;
    sigemptyset(&one);
    sigaddset(&one, SIGTSTP);
    raise(SIGTSTP);
    sigprocmask(SIG_UNBLOCK, &one, 0);
    /* It stops in this call and goes on after it. */
    signal(SIGTSTP, stop);
}

/* The first thread handles SIGINT while it waits for a line or is about to. Either way it does not
 * wait on: its call is interrupted, or finds standard input closed. */
static void end(int number) { enough = 1; close(0); }

int main(int words, char **word) {
    pthread_t threads[2];
    char line[512];
    int handles = words > 1 && !strcmp(word[1], "handles");
    setvbuf(stdout, 0, _IOLBF, 0);
    if (words > 1 && !strcmp(word[1], "ignores")) signal(SIGTSTP, SIG_IGN);
    if (handles) {
        struct sigaction action = {0};
        signal(SIGTSTP, stop);
        action.sa_handler = end;
        sigaction(SIGINT, &action, 0);
    }
    /* Only the first thread handles signals: it writes nothing before it has handled a stop to
 * the end, and no signal at another thread is to interrupt its reading. */
    sigset_t handled;
    sigemptyset(&handled);
    sigaddset(&handled, SIGTSTP);
    sigaddset(&handled, SIGINT);
    if (handles) pthread_sigmask(SIG_BLOCK, &handled, 0);
    for (long i = 0; i < 2; i++) pthread_create(&threads[i], 0, count, (void *)i);
    if (handles) pthread_sigmask(SIG_UNBLOCK, &handled, 0);
    for (int round = 0, found = words < 3; round < 4000 && !found; round++) {
        FILE *maps = fopen("/proc/self/maps", "r");
        while (fgets(line, sizeof line, maps)) found |= strstr(line, word[2]) != 0;
        fclose(maps);
        usleep(5000);
    }
    printf("ready\n");
    while (!enough && fgets(line, sizeof line, stdin)) printf("got %s", line);
    enough = 1;
    for (int i = 0; i < 2; i++) pthread_join(threads[i], 0);
    printf("%d stops, %s\n", stops, counted[0] == shared[0] && counted[1] == shared[1] ? "right" : "wrong");
    return 7;
}
