/* Threads that may be cancelled at any instruction, each cancelled while it waits in the kernel. A
 * call that ends early shows, because its thread then ends by itself. */
#define _GNU_SOURCE
#include <poll.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <time.h>

enum { ROUNDS = 60 };

static volatile int waits;

static void *wait_long(void *which) {
    struct timespec hour = {.tv_sec = 3600};
    pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
    waits = 1;
    if ((intptr_t)which % 2 == 0) nanosleep(&hour, NULL);
    else poll(NULL, 0, 3600000);
    return NULL;
}

int main(void) {
    int cancelled = 0;
    for (intptr_t i = 0; i < ROUNDS; i++) {
        struct timespec moment = {.tv_nsec = i < 10 ? 50000000 : 2000000};
        pthread_t thread;
        void *result = NULL;
        waits = 0;
        pthread_create(&thread, NULL, wait_long, (void *)i);
        while (!waits) nanosleep(&moment, NULL);
        nanosleep(&moment, NULL);
        pthread_cancel(thread);
        pthread_join(thread, &result);
        cancelled += result == PTHREAD_CANCELED;
    }
    printf("cancelled %d of %d\n", cancelled, ROUNDS);
    return 0;
}
