/* Two threads write different fields of one record, which is a thread-local variable of a
 * library: `locals RUNS [LIBRARY [remove]]`. The library is linked or, if its path is given,
 * loaded by the thread that creates the others; `remove` deletes its file then. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

struct tally {
    long own, given;
    long unused[6];
};

static struct tally *(*my_tally)(void);
static struct tally *shared;
static long runs;
static pthread_barrier_t ready;

static void count(volatile long *word)
{
    volatile long beside[16] = { 0 };
    for (long i = 0; i < runs; i++) {
        ++*word;
        beside[i & 15] = i;
    }
}

static void *owner(void *argument)
{
    shared = my_tally();
    pthread_barrier_wait(&ready);
    count(&shared->own);
    /* The record exists only as long as its thread. */
    pthread_barrier_wait(&ready);
    printf("%ld %ld\n", shared->own, shared->given);
    return argument;
}

static void *guest(void *argument)
{
    pthread_barrier_wait(&ready);
    count(&shared->given);
    pthread_barrier_wait(&ready);
    return argument;
}

int main(int argc, char **argv)
{
    if (argc < 2)
        return 1;
    runs = atol(argv[1]);
    void *library = argc > 2 ? dlopen(argv[2], RTLD_NOW) : RTLD_DEFAULT;
    void *found = library || argc == 2 ? dlsym(library, "my_tally") : NULL;
    if (!found) {
        fprintf(stderr, "%s\n", dlerror());
        return 2;
    }
    *(void **)&my_tally = found;
    if (argc > 3)
        remove(argv[2]);
    pthread_barrier_init(&ready, NULL, 2);
    pthread_t threads[2];
    pthread_create(&threads[0], NULL, owner, NULL);
    pthread_create(&threads[1], NULL, guest, NULL);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    return 0;
}
