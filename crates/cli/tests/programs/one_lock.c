/* Four threads pass a mutex to each other and count on one line, with the mutex and without it. In
 * between, each works on data of its own, longer the higher its number is. What each thread does
 * does not depend on who gets the mutex first. The argument is the number of rounds. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum { THREADS = 4, WORDS = 64 };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static volatile long total, taken[THREADS];
static volatile long own[THREADS][WORDS];
static long rounds;

static void *work(void *argument) {
    long me = (long)argument;
    for (long round = 0; round < rounds; round++) {
        for (long i = 0; i < 20 + 13 * me; i++) own[me][i % WORDS]++;
        pthread_mutex_lock(&mutex);
        total += me;
        taken[me]++;
        pthread_mutex_unlock(&mutex);
        taken[me]++;
    }
    return NULL;
}

int main(int count, char **arguments) {
    rounds = count > 1 ? atol(arguments[1]) : 100;
    pthread_t threads[THREADS];
    for (long i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, work, (void *)i);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    printf("%ld\n", total);
    return 0;
}
