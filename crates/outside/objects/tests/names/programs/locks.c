/* Locks that are variables, elements of an array and fields of a record. */
#include <pthread.h>
#include <stdlib.h>

struct account {
    long number;
    pthread_mutex_t lock;
    long balance;
};

struct account bank[4];
pthread_mutex_t whole = PTHREAD_MUTEX_INITIALIZER;
pthread_mutex_t other = PTHREAD_MUTEX_INITIALIZER;
pthread_mutex_t third = PTHREAD_MUTEX_INITIALIZER;
pthread_spinlock_t spins[8];
long total;

pthread_mutex_t fourth = PTHREAD_MUTEX_INITIALIZER;

#ifdef __clang__
#define APART __attribute__((noinline))
#else
#define APART __attribute__((noipa))
#endif

/* A lock that is a parameter counts for the callers. */
APART void take(pthread_mutex_t *lock)
{
    pthread_mutex_lock(lock);
}

/* The same one level further, at which the search stops. */
APART void take_too(pthread_mutex_t *lock)
{
    take(lock);
}

/* The second argument, after another. */
APART void give(long n, pthread_mutex_t *lock)
{
    total += n;
    pthread_mutex_unlock(lock);
}

__attribute__((noinline)) static void deposit(struct account *a, long n)
{
    pthread_mutex_lock(&a->lock); /* LINE field_lock */
    a->balance += n;
    pthread_mutex_unlock(&a->lock); /* LINE field_unlock */
}

__attribute__((noinline)) static void loop(long n)
{
    for (long i = 0; i < n; i++) {
        if (i % 2 == 0) {
            pthread_mutex_lock(&whole); /* LINE whole_lock */
            total += i;
            pthread_mutex_unlock(&whole); /* LINE whole_unlock */
        }
        deposit(&bank[i & 3], i);
        pthread_spin_lock(&spins[i & 7]); /* LINE spin_lock */
        total -= i;
        pthread_spin_unlock(&spins[i & 7]); /* LINE spin_unlock */
    }
}

int main(int argc, char **argv)
{
    (void)argv;
    loop(argc);
    take(argc > 1 ? &other : &third);
    take(&fourth); /* LINE taken */
    take_too(&third);
    take(&bank[1].lock); /* LINE element_taken */
    give(argc, &fourth); /* LINE given */
    pthread_mutex_lock(&bank[2].lock); /* LINE element_lock */
    return bank[2].balance == 0;
}
