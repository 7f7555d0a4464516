/* Mutexes of every type, taken in every way. */
#include "check.h"

#define ROUNDS (20000 * scale)

static struct {
    pthread_mutex_t mutex;
    long plain;
} guarded[5] = {{.mutex = PTHREAD_MUTEX_INITIALIZER},
                {.mutex = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP},
                {.mutex = PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP},
                {.mutex = PTHREAD_ADAPTIVE_MUTEX_INITIALIZER_NP}};

static int how;

static void take(pthread_mutex_t *mutex) {
    switch (how) {
    case 0:
        DO(pthread_mutex_lock(mutex));
        break;
    case 1:
        for (int result; (result = pthread_mutex_trylock(mutex)) != 0;) {
            CHECK(result == EBUSY);
            sched_yield();
        }
        break;
    default: {
        struct timespec end = after(CLOCK_REALTIME, 60000);
        DO(pthread_mutex_timedlock(mutex, &end));
    }
    }
}

static void *add(void *number) {
    long own = (long)number;
    for (long i = 0; i < ROUNDS; i++) {
        for (int k = 0; k < 5; k++) {
            take(&guarded[k].mutex);
            guarded[k].plain++;
            DO(pthread_mutex_unlock(&guarded[k].mutex));
        }
        if (i % 100 == 0) heat(own, 100);
    }
    return NULL;
}

static void *die_with_it(void *mutex) {
    DO(pthread_mutex_lock(mutex));
    return NULL;
}

static void *inherit(void *mutex) {
    DO(pthread_mutex_lock(mutex));
    heat(7, 1000);
    DO(pthread_mutex_unlock(mutex));
    return NULL;
}

int main(int argc, char **argv) {
    arguments(argc, argv);
    pthread_mutexattr_t attributes;
    DO(pthread_mutexattr_init(&attributes));
    DO(pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED));
    DO(pthread_mutex_init(&guarded[4].mutex, &attributes));
    for (how = 0; how < 3; how++) in_threads(add);
    for (int k = 0; k < 5; k++) printf("type %d: %d\n", k, guarded[k].plain == 3 * THREADS * ROUNDS);

    pthread_mutex_t *recursive = &guarded[1].mutex, *checking = &guarded[2].mutex;
    DO(pthread_mutex_lock(recursive));
    DO(pthread_mutex_lock(recursive));
    DO(pthread_mutex_unlock(recursive));
    DO(pthread_mutex_unlock(recursive));
    CHECK(pthread_mutex_unlock(recursive) == EPERM);
    DO(pthread_mutex_lock(checking));
    CHECK(pthread_mutex_lock(checking) == EDEADLK);
    struct timespec soon = after(CLOCK_REALTIME, 20);
    CHECK(pthread_mutex_timedlock(checking, &soon) == EDEADLK);
    DO(pthread_mutex_unlock(checking));

    pthread_mutex_t robust;
    DO(pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST));
    DO(pthread_mutex_init(&robust, &attributes));
    pthread_t thread;
    DO(pthread_create(&thread, NULL, die_with_it, &robust));
    DO(pthread_join(thread, NULL));
    CHECK(pthread_mutex_lock(&robust) == EOWNERDEAD);
    DO(pthread_mutex_consistent(&robust));
    DO(pthread_mutex_unlock(&robust));
    DO(pthread_mutex_lock(&robust));
    puts("robust: the owner died");

    pthread_mutex_t inheriting;
    DO(pthread_mutexattr_init(&attributes));
    DO(pthread_mutexattr_setprotocol(&attributes, PTHREAD_PRIO_INHERIT));
    DO(pthread_mutex_init(&inheriting, &attributes));
    DO(pthread_mutex_lock(&inheriting));
    DO(pthread_create(&thread, NULL, inherit, &inheriting));
    heat(6, 10000);
    DO(pthread_mutex_unlock(&inheriting));
    DO(pthread_join(thread, NULL));
    puts("inheriting: done");
    for (long i = 0; i < THREADS; i++) cool(i, 3 * ROUNDS);
    return 0;
}
