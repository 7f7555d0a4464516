/* Threads that go over memory of their own, again and again, and now and then add to
 * a counter that all have in common: what a replay costs by length, threads and
 * lines. Arguments: threads, lines in all, accesses in all, and anything if the first
 * thread is to prepare the memory. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WORDS = 8, MOST = 64 };

/* Alone on its line, and nothing else is read again and again from memory of all. */
static _Alignas(128) uint64_t counter;
static _Alignas(128) long lines, accesses;
/* Whether the first thread prepares the memory and looks at it at the end, so that all
 * lines move; otherwise only the counter's does. */
static int handed;

static void *work(void *p)
{
    uint64_t *own = p;
    long words = lines * WORDS, at = 0, todo = accesses;
    for (long i = 0; i < todo; i += 2) {
        own[at] += (uint64_t)i;
        if (i % 64 == 0)
            __atomic_fetch_add(&counter, 1, __ATOMIC_RELAXED);
        /* The next line, and after the last the next word of the first. */
        at += WORDS;
        if (at >= words)
            at = at - words + 1 == WORDS ? 0 : at - words + 1;
    }
    return 0;
}

int main(int argc, char **argv)
{
    int threads = argc > 1 ? atoi(argv[1]) : 2;
    if (threads < 1 || threads > MOST)
        return 2;
    lines = (argc > 2 ? atol(argv[2]) : 1000) / threads;
    accesses = (argc > 3 ? atol(argv[3]) : 1000000) / threads;
    handed = argc > 4;
    pthread_t t[MOST];
    uint64_t *own[MOST], sum = 0;
    for (int i = 0; i < threads; i++) {
        own[i] = aligned_alloc(64, (size_t)lines * 64);
        if (!own[i])
            return 1;
        /* The C library's accesses are in no trace. */
        memset(own[i], 0, (size_t)lines * 64);
        for (long k = 0; handed && k < lines * WORDS; k++)
            own[i][k] = 0;
        pthread_create(&t[i], 0, work, own[i]);
    }
    for (int i = 0; i < threads; i++) {
        pthread_join(t[i], 0);
        for (long k = 0; handed && k < lines * WORDS; k++)
            sum += own[i][k];
    }
    printf("%lu %lu\n", (unsigned long)sum, (unsigned long)counter);
    return 0;
}
