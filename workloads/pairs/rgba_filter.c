/* A smoothing filter for small images with four channels. Thread t works on the
 * channels t, t + T and so on. The bytes of the channels of a pixel lie side by
 * side, so all threads write to all cache lines of the image. The other layout
 * has one plane for each channel. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { CHANNELS = 4, WIDTH = 64, HEIGHT = 16, PIXELS = WIDTH * HEIGHT };

static uint8_t *image;
static int threads;
static long passes;

#if FIXED
enum { PIXEL_STEP = 1, CHANNEL_STEP = PIXELS };
#else
enum { PIXEL_STEP = CHANNELS, CHANNEL_STEP = 1 };
#endif

static uint8_t *pixel(int channel, int x, int y) {
    return &image[channel * CHANNEL_STEP + (y * WIDTH + x) * PIXEL_STEP];
}

/* Each pixel moves toward the ones to its left and above; the light that
 * rounding loses goes to the next pixel, so that the image stays alive. */
static void smooth(int channel, unsigned pass) {
    unsigned rest = pass & 7;
    for (int y = 0; y < HEIGHT; y++) {
        unsigned left = *pixel(channel, WIDTH - 1, y);
        for (int x = 0; x < WIDTH; x++) {
            uint8_t *p = pixel(channel, x, y);
            unsigned above = *pixel(channel, x, y > 0 ? y - 1 : HEIGHT - 1);
            unsigned value = 2u * *p + left + above + rest + (unsigned)x % 3;
            rest = value & 3;
            left = value >> 2 & 0xff;
            *p = (uint8_t)left;
        }
    }
}

static void *filter(void *argument) {
    int id = (int)(intptr_t)argument;
    for (int channel = id; channel < CHANNELS; channel += threads)
        for (long pass = 0; pass < passes; pass++)
            smooth(channel, (unsigned)pass);
    return NULL;
}

int main(int argc, char **argv) {
    threads = argc > 1 ? atoi(argv[1]) : 4;
    passes = argc > 2 ? atol(argv[2]) : 130000;
    if (threads < 1 || threads > CHANNELS || passes < 1) {
        fprintf(stderr, "usage: %s THREADS PASSES (at most 4 threads)\n", argv[0]);
        return 2;
    }
    image = aligned_alloc(64, PIXELS * CHANNELS);
    for (int c = 0; c < CHANNELS; c++)
        for (int y = 0; y < HEIGHT; y++)
            for (int x = 0; x < WIDTH; x++)
                *pixel(c, x, y) = (uint8_t)((unsigned)(x * 7 + y * 13 + c * 29) * 37u >> 2);
    pthread_t workers[CHANNELS];
    for (int t = 0; t < threads; t++)
        pthread_create(&workers[t], NULL, filter, (void *)(intptr_t)t);
    for (int t = 0; t < threads; t++)
        pthread_join(workers[t], NULL);
    uint64_t sum = 0;
    for (int c = 0; c < CHANNELS; c++)
        for (int y = 0; y < HEIGHT; y++)
            for (int x = 0; x < WIDTH; x++)
                sum = sum * 31 + *pixel(c, x, y);
    printf("checksum %016lx\n", (unsigned long)sum);
    free(image);
    return 0;
}
