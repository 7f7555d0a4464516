/* Locks memory that its threads share falsely, again and again, and keeps other memory locked
 * all the time: locking must not fail, and no count may be lost. */
#include <pthread.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

static volatile long counts[512] __attribute__((aligned(4096)));
static volatile long secret[512] __attribute__((aligned(4096)));
static volatile int stop;
static long wanted[2];

static void *work(void *argument) {
    long which = (long)argument, n = 0;
    volatile long own[8] = {0};
    for (; !stop; n++) {
        counts[which]++;
        secret[which]++;
        own[n % 8] = n;
    }
    wanted[which] = n;
    return argument;
}

int main(void) {
    int failed = mlock((void *)secret, sizeof secret) != 0;
    pthread_t threads[2];
    for (long i = 0; i < 2; i++) pthread_create(&threads[i], NULL, work, (void *)i);
    for (int i = 0; i < 20; i++) {
        usleep(100000);
        failed += mlock((void *)counts, sizeof counts) != 0;
        failed += munlock((void *)counts, sizeof counts) != 0;
    }
    stop = 1;
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    int lost = 0;
    for (int i = 0; i < 2; i++) lost += counts[i] != wanted[i] || secret[i] != wanted[i];
    printf("failed %d lost %d\n", failed, lost);
    return failed || lost;
}
