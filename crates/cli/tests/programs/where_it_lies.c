/* Prints where its data lie: a global, its first blocks, a block and the stack of a
 * thread. Of the latter only the place in the page, because other mappings may lie
 * between. Nothing is allocated for the output. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static int global;
static __thread int own;

static unsigned in_page(const void *at) { return (unsigned)((uintptr_t)at % 4096); }

static void *work(void *argument) {
    int local;
    (void)argument;
    for (size_t i = 0; i < 20; i++)
        printf("thread's block %zu at byte %u\n", i, in_page(malloc(8 + 24 * i)));
    printf("thread's stack at byte %u of a line, variable at byte %u\n",
           in_page(&local) % 64, in_page(&own));
    return NULL;
}

int main(void) {
    static char buffer[1 << 16];
    pthread_t thread;
    setvbuf(stdout, buffer, _IOFBF, sizeof buffer);
    printf("global %p\n", (void *)&global);
    for (size_t i = 0; i < 100; i++) printf("block %zu %p\n", i, malloc(8 + 24 * i));
    printf("large block at byte %u\n", in_page(malloc(1 << 20)));
    for (int i = 0; i < 3; i++) {
        if (pthread_create(&thread, NULL, work, NULL) != 0) return 1;
        pthread_join(thread, NULL);
    }
    return 0;
}
