/* Two threads that write for ever to two known addresses on one line, and print
 * their numbers and the addresses. With an argument, a child process does so too.
 * All end when the process that started them ends. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <unistd.h>

static _Alignas(64) long line[8];

static void *spin(void *argument) {
    volatile long *p = argument;
    printf("%d %p\n", (int)gettid(), (void *)p);
    fflush(stdout);
    for (;;)
        (*p)++;
    return 0;
}

int main(int argc, char **argv) {
    pthread_t threads[2];
    (void)argv;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (argc > 1 && fork() == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (;;)
            ((volatile long *)line)[7]++;
    }
    pthread_create(&threads[0], 0, spin, &line[1]);
    pthread_create(&threads[1], 0, spin, &line[5]);
    for (;;)
        pause();
}
