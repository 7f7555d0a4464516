/* A program that handles its own faults, forks, and passes memory that its threads
 * write to the kernel, while these threads share a line falsely. */
#define _GNU_SOURCE
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static struct {
    volatile long count[2];
    char text[512];
} __attribute__((aligned(4096))) shared;

static sigjmp_buf back;
static volatile sig_atomic_t faults;

static void on_fault(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)context;
    faults += info->si_addr == (void *)16;
    siglongjmp(back, 1);
}

static void *work(void *argument) {
    long which = (long)argument;
    volatile long own[8] = {0};
    for (long i = 0; i < 60000000; i++) {
        shared.count[which]++;
        own[i % 8] = i;
    }
    return NULL;
}

int main(void) {
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO};
    sigfillset(&action.sa_mask);
    sigaction(SIGSEGV, &action, NULL);
    pthread_t threads[2];
    for (long i = 0; i < 2; i++) pthread_create(&threads[i], NULL, work, (void *)i);
    int ends[2], wrong = pipe(ends) != 0;
    for (int i = 0; i < 40; i++) {
        usleep(10000);
        if (sigsetjmp(back, 1) == 0) *(volatile int *)16 = 1;
        char text[64];
        snprintf(text, sizeof text, "round %d", i);
        wrong += write(ends[1], text, sizeof text) != sizeof text;
        wrong += read(ends[0], shared.text + 100, sizeof text) != sizeof text;
        wrong += strcmp(shared.text + 100, text) != 0;
        if (i % 8 == 7) {
            pid_t child = fork();
            if (child == 0) _exit(strcmp(shared.text + 100, text) == 0 ? 5 : 6);
            int status = 0;
            waitpid(child, &status, 0);
            wrong += WEXITSTATUS(status) != 5;
        }
    }
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    struct sigaction seen;
    sigaction(SIGSEGV, NULL, &seen);
    wrong += seen.sa_sigaction != on_fault;
    printf("%ld %ld faults %d wrong %d\n", shared.count[0], shared.count[1], (int)faults, wrong);
    return 0;
}
