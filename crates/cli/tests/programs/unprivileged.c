/* Drops its privileges, as servers do, then works with two threads for a while. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/types.h>
#include <unistd.h>

enum { NOBODY = 65534, ROUNDS = 60000000 };

static volatile long counts[2];

static void *work(void *argument) {
    long which = (long)argument;
    volatile long own[8] = {0};
    for (long n = 0; n < ROUNDS; n++) {
        counts[which]++;
        own[n % 8] = n;
    }
    return argument;
}

int main(void) {
    pthread_t threads[2];
    if (setgid(NOBODY) || setuid(NOBODY))
        return 77;
    for (long i = 0; i < 2; i++) pthread_create(&threads[i], NULL, work, (void *)i);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    printf("%ld %ld\n", counts[0], counts[1]);
    return 0;
}
