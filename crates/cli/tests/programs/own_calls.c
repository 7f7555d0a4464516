/* Makes a process by a system call of its own, after its threads have computed on one line:
 * wrappers of the C library's functions do not see that call. */
#include <pthread.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

volatile long shared[8] __attribute__((aligned(64)));
static volatile long beside[2][64];

static void *count(void *number) {
    long own = (long)number;
    for (long i = 0; i < 40000000; i++) {
        shared[own]++;
        beside[own][0] = i;
    }
    return NULL;
}

static long own_fork(void) {
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "a"(57L) : "rcx", "r11", "memory");
    return result;
}

int main(void) {
    pthread_t thread[2];
    for (long i = 0; i < 2; i++) pthread_create(&thread[i], NULL, count, (void *)i);
    for (int i = 0; i < 2; i++) pthread_join(thread[i], NULL);
    long child = own_fork();
    if (child == 0) {
        shared[0] = -1;
        _exit(3);
    }
    int status = -1;
    waitpid((pid_t)child, &status, 0);
    printf("%ld %ld, child %d\n", shared[0], shared[1], status >> 8);
    return 0;
}
