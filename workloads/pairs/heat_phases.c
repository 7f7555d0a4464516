/* Heat in metal bars, one bar a thread, in phases with barriers between them.
 * First each thread moves the heat in its bar. The bars lie side by side in one
 * array, so each cache line has cells of all bars. Then each thread computes the
 * fire under its bar, which touches nothing of the others. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { MAX_THREADS = 16, CELLS = 256, STEPS = 400, FLAMES = 300000 };

#if FIXED
enum { CELL_STEP = 1, BAR_STEP = CELLS };
#else
enum { CELL_STEP = MAX_THREADS, BAR_STEP = 1 };
#endif

struct bar {
    pthread_t thread;
    int32_t *heat; /* of the first cell */
    uint32_t fire;
};

static pthread_barrier_t barrier;
static long phases;

static void move_heat(int32_t *heat) {
    for (int step = 0; step < STEPS; step++) {
        int32_t left = heat[0];
        for (int i = 1; i < CELLS - 1; i++) {
            int32_t here = heat[i * CELL_STEP];
            heat[i * CELL_STEP] = (left + 2 * here + heat[(i + 1) * CELL_STEP]) / 4;
            left = here;
        }
    }
}

static uint32_t burn(uint32_t fire) {
    for (int i = 0; i < FLAMES; i++) {
        fire ^= fire << 13;
        fire ^= fire >> 17;
        fire ^= fire << 5;
    }
    return fire;
}

static void *simulate(void *argument) {
    struct bar *bar = argument;
    uint32_t fire = bar->fire;
    for (long p = 0; p < phases; p++) {
        move_heat(bar->heat);
        pthread_barrier_wait(&barrier);
        fire = burn(fire);
        pthread_barrier_wait(&barrier);
        bar->heat[fire % CELLS * CELL_STEP] += (int32_t)(fire >> 12);
    }
    bar->fire = fire;
    return NULL;
}

int main(int argc, char **argv) {
    int threads = argc > 1 ? atoi(argv[1]) : 2;
    phases = argc > 2 ? atol(argv[2]) : 1300;
    if (threads < 1 || threads > MAX_THREADS || phases < 1) {
        fprintf(stderr, "usage: %s THREADS PHASES\n", argv[0]);
        return 2;
    }
    _Alignas(64) int32_t heat[CELLS * MAX_THREADS] = {0};
    struct bar *bars = calloc((size_t)threads, sizeof *bars);
    pthread_barrier_init(&barrier, NULL, (unsigned)threads);
    for (int t = 0; t < threads; t++) {
        bars[t].fire = 2463534242u + (uint32_t)t;
        bars[t].heat = &heat[t * BAR_STEP];
        pthread_create(&bars[t].thread, NULL, simulate, &bars[t]);
    }
    for (int t = 0; t < threads; t++)
        pthread_join(bars[t].thread, NULL);
    uint64_t sum = 0;
    for (int t = 0; t < threads; t++)
        for (int i = 0; i < CELLS; i++)
            sum = sum * 31 + (uint32_t)bars[t].heat[i * CELL_STEP];
    printf("checksum %016lx\n", (unsigned long)sum);
    pthread_barrier_destroy(&barrier);
    free(bars);
    return 0;
}
