/* Threads that format log lines. Each has a line buffer of 24 bytes in a global
 * array, fills it with memset and memcpy for each event, and takes a checksum of
 * it, as if to send it. The buffers of two threads are on one cache line. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_THREADS = 16, LENGTH = 24 };

struct line {
    char text[LENGTH];
#if FIXED
    char padding[64 - LENGTH];
#endif
};

static _Alignas(64) struct line lines[MAX_THREADS];
static long events;

static const char *const words[] = {"open", "close", "read", "write", "connect", "seek"};

/* Writes the decimal digits of a number to the right end of the field. */
static void put_number(char *end, uint32_t number) {
    do {
        *--end = (char)('0' + number % 10);
        number /= 10;
    } while (number > 0);
}

static void format(char *text, size_t length, uint32_t event) {
    const char *word = words[event % 6];
    memset(text, ' ', length);
    memcpy(text, word, strlen(word));
    put_number(text + length - 1, event >> 8 & 0xffff);
    text[length - 1] = '\n';
}

static uint32_t adler(uint32_t before, const char *text, size_t length) {
    uint32_t a = before & 0xffff, b = before >> 16;
    for (size_t i = 0; i < length; i++) {
        a += (unsigned char)text[i];
        b += a;
    }
    return (b % 65521) << 16 | a % 65521;
}

static void *run_events(void *argument) {
    int id = (int)(intptr_t)argument;
    uint32_t sum = 1, event = 12345u + (uint32_t)id;
    for (long i = 0; i < events; i++) {
        event = event * 1664525u + 1013904223u;
        format(lines[id].text, LENGTH, event);
        sum = adler(sum, lines[id].text, LENGTH);
    }
    return (void *)(uintptr_t)sum;
}

int main(int argc, char **argv) {
    int threads = argc > 1 ? atoi(argv[1]) : 2;
    events = argc > 2 ? atol(argv[2]) : 45000000;
    if (threads < 1 || threads > MAX_THREADS || events < 1) {
        fprintf(stderr, "usage: %s THREADS EVENTS\n", argv[0]);
        return 2;
    }
    pthread_t workers[MAX_THREADS];
    for (int t = 0; t < threads; t++)
        pthread_create(&workers[t], NULL, run_events, (void *)(intptr_t)t);
    uint64_t sum = 0;
    for (int t = 0; t < threads; t++) {
        void *result;
        pthread_join(workers[t], &result);
        sum = sum * 31 + (uintptr_t)result;
    }
    printf("checksum %016lx\n", (unsigned long)sum);
    return 0;
}
