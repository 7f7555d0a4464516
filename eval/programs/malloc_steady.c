/* Allocates and frees small blocks about as often as a busy program does: a pair
 * in some 100 ns of a thread, which on two CPUs is some 20 million pairs a second,
 * with a little work between. Each thread keeps a few dozen blocks alive.
 * Arguments: threads, pairs a thread. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

/* Rounds of work between two allocations, each of four to five cycles: most of
 * the 100 ns. */
enum { LIVE = 32, WORK = 66 };

static long pairs;

static void *work(void *p)
{
    uint64_t seed = (uint64_t)(uintptr_t)p + 1;
    uint64_t *live[LIVE] = {0};
    uint64_t sum = 0;
    for (long i = 0; i < pairs; i++) {
        for (int k = 0; k < WORK; k++)
            seed = seed * 6364136223846793005u + 1442695040888963407u;
        unsigned slot = (unsigned)(seed >> 33) % LIVE;
        if (live[slot])
            sum += *live[slot];
        free(live[slot]);
        live[slot] = malloc(16 + (seed >> 45) % 112);
        *live[slot] = seed;
    }
    for (int i = 0; i < LIVE; i++)
        free(live[i]);
    return (void *)(uintptr_t)sum;
}

int main(int argc, char **argv)
{
    int threads = argc > 1 ? atoi(argv[1]) : 2;
    pairs = argc > 2 ? atol(argv[2]) : 5000000;
    pthread_t t[64];
    uint64_t sum = 0;
    for (int i = 0; i < threads && i < 64; i++)
        pthread_create(&t[i], 0, work, (void *)(uintptr_t)i);
    for (int i = 0; i < threads && i < 64; i++) {
        void *part;
        pthread_join(t[i], &part);
        sum += (uint64_t)(uintptr_t)part;
    }
    printf("%d threads, %ld pairs each, %016lx\n", threads, pairs, (unsigned long)sum);
    return 0;
}
