/* Threads that may be cancelled at any instruction, as redis' threads are, and that are while they
 * count, falsely shared; before that, children by vfork. With "stay" the threads end by themselves.
 * Says whether each was unwound from the instruction at which it was: compiled with
 * -fnon-call-exceptions, its cleanup handlers run only then. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static struct {
    volatile long count[2];
    char rest[4080];
} __attribute__((aligned(4096))) shared;

static int unwound;
static volatile int stop;

static void handler(void *argument) { __atomic_fetch_add((int *)argument, 1, __ATOMIC_SEQ_CST); }

__attribute__((noinline)) static void count(volatile long *counter) {
    volatile long own[8] = {0};
    for (long n = 0; !stop; n++) {
        (*counter)++;
        own[n % 8] = n;
    }
}

static void *work(void *argument) {
    pthread_cleanup_push(handler, &unwound);
    pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
    count(argument);
    pthread_cleanup_pop(0);
    return NULL;
}

static int child(void) {
    pid_t child = vfork();
    if (child == 0) {
        execl("/bin/true", "true", (char *)NULL);
        _exit(1);
    }
    int status = 1;
    return waitpid(child, &status, 0) == child && status == 0;
}

int main(int argc, char **arguments) {
    long milliseconds = argc > 1 ? atol(arguments[1]) : 800;
    int good = child(), cancelled = 0;
    pthread_t threads[2];
    for (int i = 0; i < 2; i++) pthread_create(&threads[i], NULL, work, (void *)&shared.count[i]);
    for (long i = 0; i < milliseconds; i += 50) {
        struct timespec time = {.tv_nsec = 50000000};
        nanosleep(&time, NULL);
        if (i % 200 == 0 && i < 500) good += child();
    }
    for (int i = 0; i < 2; i++) {
        void *result = NULL;
        if (argc > 2) stop = 1;
        else pthread_cancel(threads[i]);
        pthread_join(threads[i], &result);
        cancelled += result == PTHREAD_CANCELED;
    }
    printf("cancelled %d, unwound %d, children %d\n", cancelled, unwound, good);
    return 0;
}
