/* Four threads spin with a number of their own in two registers. Two of them
 * block all signals, as worker threads of many programs do. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>
static volatile int stop;
static pthread_barrier_t barrier;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
__attribute__((noinline, noclone)) void spin(long number) {
    __asm__ volatile("mov %0, %%rbx\n mov %0, %%r15\n not %%r15\n"
                     "1: pause\n cmpl $0, %1\n je 1b"
                     : : "r"(number), "m"(stop) : "rbx", "r15", "memory");
}
static void *run(void *a) {
    sigset_t all;
    sigfillset(&all);
    if ((long)a & 1) pthread_sigmask(SIG_BLOCK, &all, NULL);
    pthread_mutex_lock(&lock);
    printf("%d %ld\n", gettid(), (long)a);
    pthread_mutex_unlock(&lock);
    pthread_barrier_wait(&barrier);
    spin((long)a);
    return a;
}
int main(void) {
    pthread_t t[4];
    pthread_barrier_init(&barrier, NULL, 5);
    for (long i = 0; i < 4; i++) pthread_create(&t[i], NULL, run, (void *)(i * 1000003 + 17));
    pthread_barrier_wait(&barrier);
    printf("ready\n");
    fflush(stdout);
    while (getchar_unlocked() != EOF) {}
    stop = 1;
    for (int i = 0; i < 4; i++) pthread_join(t[i], NULL);
    return 0;
}
