/* Threads that end in different ways; prints for each its number, an address on
 * its stack, the address of its thread-local variable, what it was started
 * with, and whether it has ended. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <string.h>
static __thread int own;
static pthread_barrier_t barrier;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static void say(const char *name, const char *state) {
    char here;
    pthread_mutex_lock(&lock);
    printf("%d %p %p %s %s\n", gettid(), (void *)&here, (void *)&own, name, state);
    fflush(stdout);
    pthread_mutex_unlock(&lock);
}
void *returns(void *a) { say("returns", "ended"); free(malloc(10)); return a; }
void *exits(void *a) { say("exits", "ended"); pthread_exit(a); }
static int cleaned;
static void clean(void *a) { cleaned = 1; free(a); }
void *cancelled(void *a) {
    say("cancelled", "ended");
    pthread_cleanup_push(clean, malloc(100));
    pthread_barrier_wait(&barrier);
    for (;;) pause();
    pthread_cleanup_pop(0);
    return a;
}
void *stays(void *a) { say("stays", "runs"); pthread_barrier_wait(&barrier); pause(); return a; }
static pthread_key_t key;
static void late(void *a) { free(a); free(malloc(77)); }
void *with_key(void *a) { say("with_key", "ended"); pthread_setspecific(key, malloc(33)); return a; }
int main(void) {
    pthread_t t; void *result; pthread_attr_t small;
    say("main", "runs");
    pthread_barrier_init(&barrier, NULL, 2);
    pthread_key_create(&key, late);
    pthread_create(&t, NULL, returns, (void *)1); pthread_join(t, &result);
    if (result != (void *)1) return 1;
    pthread_create(&t, NULL, exits, (void *)2); pthread_join(t, &result);
    if (result != (void *)2) return 2;
    pthread_create(&t, NULL, cancelled, NULL); pthread_barrier_wait(&barrier);
    pthread_cancel(t); pthread_join(t, &result);
    if (result != PTHREAD_CANCELED || !cleaned) return 3;
    pthread_attr_init(&small); pthread_attr_setstacksize(&small, 32768);
    pthread_create(&t, &small, with_key, NULL); pthread_join(t, &result);
    pthread_attr_setstacksize(&small, (size_t)1 << 60);
    if (pthread_create(&t, &small, returns, NULL) == 0) return 4; /* must fail as it does without us */
    pthread_create(&t, NULL, stays, NULL); pthread_barrier_wait(&barrier);
    printf("ready\n"); fflush(stdout);
    while (getchar() != EOF) {}
    return 0;
}
