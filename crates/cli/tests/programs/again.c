/* Threads share a line falsely; then the process executes this program again, as often as the argument says. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static struct { volatile long n; } slots[2] __attribute__((aligned(64)));

static void *work(void *at) {
    for (long i = 0; i < 300000000; i++) slots[(long)at].n++;
    return 0;
}

int main(int argc, char **argv) {
    pthread_t threads[2];
    char left[16];
    int times = argc > 1 ? atoi(argv[1]) : 0;
    for (long i = 0; i < 2; i++) pthread_create(&threads[i], 0, work, (void *)i);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], 0);
    printf("%ld\n", slots[0].n + slots[1].n);
    fflush(stdout);
    if (times > 0) {
        snprintf(left, sizeof left, "%d", times - 1);
        execl("/proc/self/exe", argv[0], left, (char *)0);
        return 1;
    }
    return 0;
}
