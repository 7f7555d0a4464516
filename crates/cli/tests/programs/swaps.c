/* Counts in two threads, falsely shared, until it reads a byte from standard input; then says
 * whether its counts are right. Meanwhile a process with the same table of descriptors puts the
 * file that is the argument, opened for reading, in the place of every file that is newly opened. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static struct {
    volatile long count[2];
} shared __attribute__((aligned(64)));

static volatile int stop;
static long wanted[2];

static void *counts(void *of) {
    long id = (long)of, n = 0;
    while (!stop) {
        shared.count[id]++;
        n++;
    }
    wanted[id] = n;
    return NULL;
}

static int swaps(void *path) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    int file = open(path, O_RDONLY), next = file + 1;
    if (file < 0) return 1;
    puts("ready");
    fflush(stdout);
    for (;;)
        if (fcntl(next, F_GETFD) >= 0) {
            dup2(file, next);
            while (fcntl(next, F_GETFD) >= 0) {}
        }
}

static char stack[1 << 16] __attribute__((aligned(16)));

int main(int argc, char **argv) {
    int child = clone(swaps, stack + sizeof stack, CLONE_FILES | SIGCHLD, argv[argc - 1]);
    if (child < 0) return 1;
    pthread_t threads[2];
    for (long id = 0; id < 2; id++) pthread_create(&threads[id], NULL, counts, (void *)id);
    char byte;
    if (read(0, &byte, 1) < 0) return 1;
    stop = 1;
    for (int id = 0; id < 2; id++) pthread_join(threads[id], NULL);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    printf("wrong %d\n", (shared.count[0] != wanted[0]) + (shared.count[1] != wanted[1]));
    return 0;
}
