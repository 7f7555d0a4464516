/* Unoptimised, so its pointers lie in memory: one thread only reads a word through
 * such a pointer, another writes the word beside it. Prints the address of the
 * read word and the number of the reading thread, then runs until it is killed, a
 * minute at most. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>

static _Alignas(64) struct {
    volatile uint64_t read;
    volatile uint64_t written;
} line;

static void *reader(void *p) {
    volatile uint64_t *mine = p;
    uint64_t last = 0;
    printf("%p %d\n", p, gettid());
    fflush(stdout);
    for (;;)
        last = *mine;
    return (void *)last;
}

static void *writer(void *p) {
    volatile uint64_t *mine = p;
    for (;;)
        ++*mine;
    return 0;
}

int main(void) {
    pthread_t threads[2];
    alarm(60);
    pthread_create(&threads[0], 0, reader, (void *)&line.read);
    pthread_create(&threads[1], 0, writer, (void *)&line.written);
    pthread_join(threads[0], 0);
    return 0;
}
