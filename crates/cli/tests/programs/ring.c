// A producer and a consumer with a ring between them, synchronised by plain loads and stores alone. Each
// waits in a loop that makes no system call. The argument is the number of items.
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

enum { CELLS = 64 };
static struct { atomic_ulong head, tail; unsigned long cells[CELLS]; } ring;
static unsigned long items, sum;
static void *producer(void *a) {
    for (unsigned long i = 0; i < items; i++) {
        while (i - atomic_load_explicit(&ring.head, memory_order_acquire) >= CELLS) { }
        ring.cells[i % CELLS] = i;
        atomic_store_explicit(&ring.tail, i + 1, memory_order_release);
    }
    return a;
}
static void *consumer(void *a) {
    for (unsigned long i = 0; i < items; i++) {
        while (atomic_load_explicit(&ring.tail, memory_order_acquire) == i) { }
        sum += ring.cells[i % CELLS];
        atomic_store_explicit(&ring.head, i + 1, memory_order_release);
    }
    return a;
}
int main(int count, char **arguments) {
    if (count != 2) return 2;
    items = strtoul(arguments[1], 0, 0);
    pthread_t threads[2];
    pthread_create(&threads[0], 0, producer, 0);
    pthread_create(&threads[1], 0, consumer, 0);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], 0);
    printf("sum %lu\n", sum);
}
