// A program that is dear to isolate: each of two threads adds to a word of its own on each of many pages, over
// and over, and to a sum under a lock now and then. Usage: wide ROUNDS
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum { PAGES = 4096, WORDS = 512, ROUNDS_A_LOCK = 64 };

static long rounds;
static long (*pages)[WORDS];
static long locked;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void *add(void *own) {
    // Lines of different pages, so that few of them fall into one set of the cache.
    long first = (long)own * WORDS / 2;
    for (long round = 0; round < rounds; round++) {
        for (long page = 0; page < PAGES; page++)
            pages[page][first + page % (WORDS / 2)]++;
        if (round % ROUNDS_A_LOCK == 0) {
            pthread_mutex_lock(&lock);
            locked++;
            pthread_mutex_unlock(&lock);
        }
    }
    return NULL;
}

int main(int count, char **arguments) {
    rounds = count > 1 ? atol(arguments[1]) : 20000;
    pages = aligned_alloc(sizeof *pages, PAGES * sizeof *pages);
    if (!pages)
        return 1;
    for (long page = 0; page < PAGES; page++)
        for (long word = 0; word < WORDS; word++)
            pages[page][word] = 0;
    pthread_t threads[2];
    for (long own = 0; own < 2; own++)
        if (pthread_create(&threads[own], NULL, add, (void *)own))
            return 1;
    for (int own = 0; own < 2; own++)
        pthread_join(threads[own], NULL);
    long sum = 0;
    for (long page = 0; page < PAGES; page++)
        for (long word = 0; word < WORDS; word++)
            sum += pages[page][word];
    printf("sum %ld, locked %ld\n", sum, locked);
    return 0;
}
