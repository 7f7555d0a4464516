/* Condition variables on both clocks: passing on, timing out, waking all at once. */
#include "check.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER, monotonic;
static long turn, box[THREADS], through;

static void *ping(void *number) {
    long own = (long)number;
    for (long i = 0; i < 500 * scale; i++) {
        DO(pthread_mutex_lock(&mutex));
        while (turn % THREADS != own) DO(pthread_cond_wait(&changed, &mutex));
        box[(own + 1) % THREADS] = box[own] + 1;
        turn++;
        DO(pthread_cond_broadcast(&changed));
        DO(pthread_mutex_unlock(&mutex));
        heat(own, 1000);
    }
    return NULL;
}

static void *wait_for_all(void *unused) {
    DO(pthread_mutex_lock(&mutex));
    through++;
    DO(pthread_cond_signal(&changed));
    while (through <= THREADS) {
        struct timespec end = after(CLOCK_MONOTONIC, 60000);
        DO(pthread_cond_timedwait(&monotonic, &mutex, &end));
    }
    DO(pthread_mutex_unlock(&mutex));
    return unused;
}

int main(int argc, char **argv) {
    arguments(argc, argv);
    pthread_condattr_t attributes;
    DO(pthread_condattr_init(&attributes));
    DO(pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC));
    DO(pthread_cond_init(&monotonic, &attributes));
    in_threads(ping);
    printf("turns %d, in the box %d\n", turn == THREADS * 500 * scale, box[0] == THREADS * 500 * scale);
    for (long i = 0; i < THREADS; i++) cool(i, 500 * scale * 1000);

    pthread_t thread[THREADS];
    for (int i = 0; i < THREADS; i++) DO(pthread_create(&thread[i], NULL, wait_for_all, NULL));
    DO(pthread_mutex_lock(&mutex));
    while (through < THREADS) DO(pthread_cond_wait(&changed, &mutex));
    through++;
    DO(pthread_cond_broadcast(&monotonic));
    DO(pthread_mutex_unlock(&mutex));
    for (int i = 0; i < THREADS; i++) DO(pthread_join(thread[i], NULL));

    DO(pthread_mutex_lock(&mutex));
    struct timespec soon = after(CLOCK_REALTIME, 30);
    int result;
    while ((result = pthread_cond_timedwait(&changed, &mutex, &soon)) == 0) {}
    CHECK(result == ETIMEDOUT);
    soon = after(CLOCK_MONOTONIC, 30);
    while ((result = pthread_cond_clockwait(&changed, &mutex, CLOCK_MONOTONIC, &soon)) == 0) {}
    CHECK(result == ETIMEDOUT);
    DO(pthread_mutex_unlock(&mutex));
    puts("waited in vain twice");
    return 0;
}
