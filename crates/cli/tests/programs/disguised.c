/* Counts in two threads, falsely shared, until it reads a byte from standard input. Its debug
 * information says that its source is the file SOURCE. */
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

static volatile int stop;

#line 1 SOURCE
static struct { volatile long count[2]; } shared __attribute__((aligned(64)));
static void *counts(void *of) {
    volatile long *mine = &shared.count[(long)of];
    while (!stop)
        (*mine)++;
    return NULL;
}
int main(void) {
    pthread_t threads[2];
    for (long id = 0; id < 2; id++)
        pthread_create(&threads[id], NULL, counts, (void *)id);
    puts("ready");
    fflush(stdout);
    char byte;
    if (read(0, &byte, 1) < 0)
        return 1;
    stop = 1;
    for (int id = 0; id < 2; id++)
        pthread_join(threads[id], NULL);
    return 0;
}
