/* Allocates and frees small blocks as fast as it can: the worst case for a tool
 * that follows the heap. Each thread keeps a few hundred blocks alive.
 * Arguments: threads, allocations a thread. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { LIVE = 256 };

static long allocations;

static void *churn(void *p)
{
    uint64_t seed = (uint64_t)(uintptr_t)p + 1;
    void *live[LIVE] = {0};
    for (long i = 0; i < allocations; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        unsigned slot = (unsigned)(seed >> 33) % LIVE;
        size_t size = 16 + (seed >> 45) % 240;
        free(live[slot]);
        live[slot] = malloc(size);
        *(volatile char *)live[slot] = 1;
    }
    for (int i = 0; i < LIVE; i++)
        free(live[i]);
    return 0;
}

int main(int argc, char **argv)
{
    int threads = argc > 1 ? atoi(argv[1]) : 2;
    allocations = argc > 2 ? atol(argv[2]) : 10000000;
    pthread_t t[64];
    for (int i = 0; i < threads && i < 64; i++)
        pthread_create(&t[i], 0, churn, (void *)(uintptr_t)i);
    for (int i = 0; i < threads && i < 64; i++)
        pthread_join(t[i], 0);
    printf("%d threads, %ld allocations each\n", threads, allocations);
    return 0;
}
