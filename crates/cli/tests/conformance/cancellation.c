/* Threads that are cancelled while they wait and while they compute, and their
 * cleanup handlers. */
#include "check.h"

static int pipes[2];
static volatile long cleaned, ready, cancelled;

static void clean(void *what) { __sync_fetch_and_add(&cleaned, (long)what); }

static void *in_read(void *unused) {
    char byte;
    pthread_cleanup_push(clean, (void *)1L);
    __sync_fetch_and_add(&ready, 1);
    CHECK(read(pipes[0], &byte, 1) == 1);
    pthread_cleanup_pop(0);
    return unused;
}

static void *in_sleep(void *unused) {
    pthread_cleanup_push(clean, (void *)1000L);
    __sync_fetch_and_add(&ready, 1);
    for (;;) sleep(1000);
    pthread_cleanup_pop(0);
    return unused;
}

static void unlock(void *mutex) { DO(pthread_mutex_unlock(mutex)); }

static void *in_condition(void *unused) {
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    static pthread_cond_t never = PTHREAD_COND_INITIALIZER;
    DO(pthread_mutex_lock(&mutex));
    pthread_cleanup_push(unlock, &mutex);
    pthread_cleanup_push(clean, (void *)1000000L);
    __sync_fetch_and_add(&ready, 1);
    for (;;) DO(pthread_cond_wait(&never, &mutex));
    pthread_cleanup_pop(0);
    pthread_cleanup_pop(0);
    return unused;
}

/* Computes, with points at which it may be cancelled. */
static void *at_a_point(void *unused) {
    pthread_cleanup_push(clean, (void *)1000000000L);
    __sync_fetch_and_add(&ready, 1);
    for (;;) {
        heat(1, 1000);
        pthread_testcancel();
    }
    pthread_cleanup_pop(0);
    return unused;
}

/* Computes, and may be cancelled at any instruction. */
static void *anywhere(void *unused) {
    int old;
    DO(pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &old));
    __sync_fetch_and_add(&ready, 1);
    for (;;) heat(2, 1000);
    return unused;
}

/* May not be cancelled until its work is done. */
static void *later(void *unused) {
    int old;
    DO(pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &old));
    __sync_fetch_and_add(&ready, 1);
    while (!cancelled) heat(3, 1000);
    clean((void *)1L);
    DO(pthread_setcancelstate(old, NULL));
    pthread_testcancel();
    CHECK(!"goes on although it is cancelled");
    return unused;
}

int main(int argc, char **argv) {
    arguments(argc, argv);
    CHECK(pipe(pipes) == 0);
    const body bodies[] = {in_read, in_sleep, in_condition, at_a_point, anywhere, later};
    enum { COUNT = sizeof bodies / sizeof *bodies };
    for (long round = 0; round < 5 * scale; round++) {
        pthread_t thread[COUNT];
        ready = cleaned = cancelled = 0;
        for (int i = 0; i < COUNT; i++) DO(pthread_create(&thread[i], NULL, bodies[i], NULL));
        while (ready < COUNT) sched_yield();
        heat(0, 1000000);
        for (int i = 0; i < COUNT; i++) DO(pthread_cancel(thread[i]));
        cancelled = 1;
        for (int i = 0; i < COUNT; i++) {
            void *value;
            DO(pthread_join(thread[i], &value));
            CHECK(value == PTHREAD_CANCELED);
        }
        CHECK(cleaned == 1 + 1000 + 1000000 + 1000000000 + 1);
    }
    cool(0, 5 * scale * 1000000);
    puts("all cancelled and cleaned");
    return 0;
}
