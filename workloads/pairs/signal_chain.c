/* Chains of filters for measured values. Each channel has a function for its
 * present mode and the filter's memory; a mode may choose another one for the
 * next value. The channels are small and lie in one array, so those of several
 * threads are on one cache line. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { MAX_THREADS = 32, PERIOD = 24 };

struct channel {
    int (*mode)(struct channel *c, int value);
    int32_t level;
    uint16_t clipped;
    uint16_t held;
#if FIXED
} __attribute__((aligned(64)));
#else
};
#endif

static int smooth(struct channel *c, int value);
static int hold(struct channel *c, int value);

static int limit(struct channel *c, int value) {
    c->clipped++;
    c->mode = value & 64 ? hold : smooth;
    return value > 0 ? 4000 : -4000;
}

static int hold(struct channel *c, int value) {
    c->held++;
    if ((value & 7) == 3)
        c->mode = smooth;
    return c->level;
}

static int smooth(struct channel *c, int value) {
    c->level += (value - c->level) / 8;
    if (c->level > 4000 || c->level < -4000)
        c->mode = limit;
    return c->level;
}

static struct channel *channels;
static long values;

static void *measure(void *argument) {
    struct channel *c = argument;
    int wave[PERIOD];
    for (int n = 0; n < PERIOD; n++)
        wave[n] = (n * (PERIOD - n) - 60) * 90 + (int)(c - channels);
    uint64_t sum = 0;
    for (long n = 0; n < values; n++)
        sum += (uint32_t)c->mode(c, wave[n % PERIOD]);
    return (void *)(uintptr_t)sum;
}

int main(int argc, char **argv) {
    int threads = argc > 1 ? atoi(argv[1]) : 2;
    values = argc > 2 ? atol(argv[2]) : 60000000;
    if (threads < 1 || threads > MAX_THREADS || values < 1) {
        fprintf(stderr, "usage: %s THREADS VALUES\n", argv[0]);
        return 2;
    }
    size_t bytes = (size_t)threads * sizeof *channels;
    channels = aligned_alloc(64, (bytes + 63) / 64 * 64);
    pthread_t workers[MAX_THREADS];
    for (int t = 0; t < threads; t++)
        channels[t] = (struct channel){.mode = smooth};
    for (int t = 0; t < threads; t++)
        pthread_create(&workers[t], NULL, measure, &channels[t]);
    uint64_t sum = 0;
    for (int t = 0; t < threads; t++) {
        void *result;
        pthread_join(workers[t], &result);
        sum = sum * 31 + (uint64_t)(uintptr_t)result + channels[t].clipped + 7u * channels[t].held;
    }
    printf("checksum %016lx\n", (unsigned long)sum);
    free(channels);
    return 0;
}
