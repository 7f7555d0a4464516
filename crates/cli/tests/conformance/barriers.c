/* Barriers, read-write locks, spin locks, semaphores, once. */
#include "check.h"
#include <fcntl.h>
#include <semaphore.h>

#define ROUNDS (300 * scale)

static pthread_barrier_t barrier;
static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;
static pthread_spinlock_t spin;
static sem_t items, room;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static long before[THREADS], serial, pair[2], spun, ring[8], head, tail, initialised, taken;

static void initialise(void) { initialised++; }

static void *steps(void *number) {
    long own = (long)number;
    DO(pthread_once(&once, initialise));
    CHECK(initialised == 1);
    for (long i = 1; i <= ROUNDS; i++) {
        heat(own, 500);
        before[own] = i;
        int result = pthread_barrier_wait(&barrier);
        if (result == PTHREAD_BARRIER_SERIAL_THREAD) serial++;
        else CHECK(result == 0);
        /* The plain writes of all threads from before the barrier are visible. */
        for (int k = 0; k < THREADS; k++) CHECK(before[k] == i);
        pthread_barrier_wait(&barrier);
    }
    return NULL;
}

static void *read_and_write(void *number) {
    long own = (long)number;
    for (long i = 0; i < ROUNDS * 10; i++) {
        if (i % 8 == own) {
            struct timespec end = after(CLOCK_REALTIME, 60000);
            DO(i % 16 == own ? pthread_rwlock_wrlock(&lock) : pthread_rwlock_timedwrlock(&lock, &end));
            pair[0]++;
            heat(own, 20);
            pair[1]++;
        } else {
            DO(pthread_rwlock_rdlock(&lock));
            CHECK(pair[0] == pair[1]);
        }
        DO(pthread_rwlock_unlock(&lock));
        DO(pthread_spin_lock(&spin));
        spun++;
        DO(pthread_spin_unlock(&spin));
    }
    return NULL;
}

static void *produce_or_consume(void *number) {
    long own = (long)number;
    for (long i = 0; i < ROUNDS * 4; i++) {
        if (own % 2 == 0) {
            CHECK(sem_wait(&room) == 0);
            DO(pthread_spin_lock(&spin));
            ring[head++ % 8] = 1;
            DO(pthread_spin_unlock(&spin));
            CHECK(sem_post(&items) == 0);
        } else {
            while (sem_trywait(&items) != 0) {
                CHECK(errno == EAGAIN);
                struct timespec end = after(CLOCK_REALTIME, 5);
                if (sem_timedwait(&items, &end) == 0) break;
                CHECK(errno == ETIMEDOUT);
            }
            DO(pthread_spin_lock(&spin));
            taken += ring[tail % 8];
            ring[tail++ % 8] = 0;
            DO(pthread_spin_unlock(&spin));
            CHECK(sem_post(&room) == 0);
        }
    }
    return NULL;
}

int main(int argc, char **argv) {
    arguments(argc, argv);
    DO(pthread_barrier_init(&barrier, NULL, THREADS));
    DO(pthread_spin_init(&spin, PTHREAD_PROCESS_PRIVATE));
    CHECK(sem_init(&items, 0, 0) == 0 && sem_init(&room, 0, 8) == 0);
    in_threads(steps);
    printf("one serial thread each time: %d\n", serial == ROUNDS);
    in_threads(read_and_write);
    printf("pair %d, spun %d\n", pair[0] == pair[1] && pair[0] > 0, spun == THREADS * ROUNDS * 10);
    in_threads(produce_or_consume);
    printf("taken %d\n", taken == THREADS / 2 * ROUNDS * 4);
    CHECK(pthread_rwlock_tryrdlock(&lock) == 0 && pthread_rwlock_trywrlock(&lock) == EBUSY);
    char name[64];
    snprintf(name, sizeof name, "/sunder-conformance-%d", getpid());
    sem_t *named = sem_open(name, O_CREAT | O_EXCL, 0600, 1);
    CHECK(named != SEM_FAILED && sem_unlink(name) == 0);
    CHECK(sem_wait(named) == 0 && sem_trywait(named) == -1 && sem_close(named) == 0);
    puts("named semaphore: done");
    return 0;
}
