/* One loop of each of two threads uses a word of two objects far apart, both of which the threads
 * share falsely. A copy of the loop finds the bytes of one move only. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

struct slot {
    volatile long count;
};

static struct slot table[8] __attribute__((aligned(64)));
static struct slot *heap;
static long rounds;

static void *work(void *argument) {
    long which = (long)argument;
    for (long i = 0; i < rounds; i++) {
        heap[which].count += i & 3;
        table[which].count++;
    }
    return NULL;
}

int main(int argc, char **argv) {
    pthread_t threads[2];
    rounds = argc > 1 ? atol(argv[1]) : 1000;
    heap = calloc(8, sizeof *heap);
    for (long i = 0; i < 2; i++)
        pthread_create(&threads[i], NULL, work, (void *)i);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    printf("%ld %ld %ld %ld\n", heap[0].count, heap[1].count, table[0].count, table[1].count);
    return 0;
}
