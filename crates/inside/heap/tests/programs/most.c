/* Threads allocate blocks of very many sizes. Prints the process's greatest resident memory in KiB.
 * `most LOOP THREADS`:
 *
 * alternate    each thread frees each block before it allocates the next
 * hold         each thread holds 1000 blocks and replaces one after another
 * generations  the same, and three times new threads go on with the blocks of those that ended
 * pass         each thread frees the blocks that its neighbour has allocated */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 64, LIVE = 1000, REPEATS = 8000 };

static char *held[MOST][LIVE];
static long threads;
static const char *loop;
static pthread_barrier_t together;

static uint32_t next(uint32_t *state) {
    *state ^= *state << 13;
    *state ^= *state >> 17;
    return *state ^= *state << 5;
}

static char *new_block(uint32_t *seed, uint32_t most) {
    size_t size = 8 + next(seed) % most;
    char *block = malloc(size);
    if (block == NULL) abort();
    block[0] = block[size - 1] = 1;
    return block;
}

static void *work(void *number) {
    long own = (long)number, other = (own + 1) % threads;
    uint32_t seed = 77u + (uint32_t)own;
    if (strcmp(loop, "alternate") == 0) {
        for (int i = 0; i < REPEATS; i++) free(new_block(&seed, 2000));
    } else if (strcmp(loop, "pass") == 0) {
        for (int round = 0; round < 8; round++) {
            for (int i = 0; i < LIVE; i++) held[own][i] = new_block(&seed, 500);
            pthread_barrier_wait(&together);
            for (int i = 0; i < LIVE; i++) free(held[other][i]);
            pthread_barrier_wait(&together);
        }
    } else {
        for (int i = 0; i < REPEATS; i++) {
            uint32_t at = next(&seed) % LIVE;
            free(held[own][at]);
            held[own][at] = new_block(&seed, 500);
        }
    }
    /* All threads live until the last one is done. */
    pthread_barrier_wait(&together);
    return NULL;
}

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    loop = argv[1];
    threads = atol(argv[2]);
    if (threads < 1 || threads > MOST) return 2;
    pthread_barrier_init(&together, NULL, (unsigned)threads);
    int generations = strcmp(loop, "generations") == 0 ? 4 : 1;
    for (int g = 0; g < generations; g++) {
        pthread_t thread[MOST];
        for (long i = 0; i < threads; i++)
            if (pthread_create(&thread[i], NULL, work, (void *)i) != 0) abort();
        for (long i = 0; i < threads; i++) pthread_join(thread[i], NULL);
    }
    char line[256];
    long kib = 0;
    FILE *status = fopen("/proc/self/status", "r");
    while (status != NULL && fgets(line, sizeof line, status) != NULL)
        if (sscanf(line, "VmHWM: %ld", &kib) == 1) break;
    printf("%ld\n", kib);
    return 0;
}
