/* Loudness of 16 frequency bands of a recording, for eight channels at once, a
 * recording in each thread. The compiler makes vector code of it. The levels are
 * sorted by band, then by thread; those of a thread are 32 bytes, so two threads
 * write to each cache line. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_THREADS = 16, CHANNELS = 8, BANDS = 16, FRAMES = 16 };

#if FIXED
enum { ROW = 16 };
#else
enum { ROW = CHANNELS };
#endif

struct block {
    _Alignas(32) float frames[FRAMES][CHANNELS];
};

static float *levels;
static struct block *recordings[MAX_THREADS];
static int threads;
static long rounds;

static float *levels_of(int band, int thread) {
    return levels + (band * threads + thread) * ROW;
}

/* Adds a block to the levels of its band, which fade a little each time. */
static void add_block(float *level, const struct block *block) {
    float energy[CHANNELS] = {0};
    for (int f = 0; f < FRAMES; f++)
        for (int c = 0; c < CHANNELS; c++)
            energy[c] += block->frames[f][c] * block->frames[f][c];
    for (int c = 0; c < CHANNELS; c++)
        level[c] = level[c] * 0.998f + energy[c];
}

static void *measure(void *argument) {
    int id = (int)(intptr_t)argument;
    for (long r = 0; r < rounds; r++)
        for (int band = 0; band < BANDS; band++)
            add_block(levels_of(band, id), &recordings[id][band]);
    return NULL;
}

static struct block *record(int id) {
    struct block *blocks = aligned_alloc(64, BANDS * sizeof *blocks);
    for (int b = 0; b < BANDS; b++)
        for (int f = 0; f < FRAMES; f++)
            for (int c = 0; c < CHANNELS; c++)
                blocks[b].frames[f][c] = (float)((b * 31 + f * 7 + c * 3 + id) % 97) / 97.0f;
    return blocks;
}

int main(int argc, char **argv) {
    threads = argc > 1 ? atoi(argv[1]) : 2;
    rounds = argc > 2 ? atol(argv[2]) : 4000000;
    if (threads < 1 || threads > MAX_THREADS || rounds < 1) {
        fprintf(stderr, "usage: %s THREADS ROUNDS\n", argv[0]);
        return 2;
    }
    size_t bytes = sizeof(float) * BANDS * ROW * (size_t)threads;
    levels = aligned_alloc(64, bytes);
    memset(levels, 0, bytes);
    pthread_t workers[MAX_THREADS];
    for (int t = 0; t < threads; t++)
        recordings[t] = record(t);
    for (int t = 0; t < threads; t++)
        pthread_create(&workers[t], NULL, measure, (void *)(intptr_t)t);
    uint64_t sum = 0;
    for (int t = 0; t < threads; t++) {
        pthread_join(workers[t], NULL);
        for (int i = 0; i < BANDS * CHANNELS; i++) {
            uint32_t bits;
            memcpy(&bits, &levels_of(i / CHANNELS, t)[i % CHANNELS], sizeof bits);
            sum = sum * 31 + bits;
        }
        free(recordings[t]);
    }
    printf("checksum %016lx\n", (unsigned long)sum);
    free(levels);
    return 0;
}
