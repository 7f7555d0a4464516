/* Two threads, each with a counter of its own that a wrapper allocated: `xmalloc`,
 * or the C library's `strdup`. The same wrapper allocates counters for another call
 * site. Says of both call sites whether their counters share a line. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int by_strdup;
static long *busy[3], *idle[3];
static volatile long *used[2];
static volatile long elsewhere[2][64];

__attribute__((noinline)) static void *xmalloc(size_t size) {
    void *block = malloc(size);
    if (block == NULL) abort();
    return memset(block, 0, size);
}

__attribute__((noinline)) static void make_busy(void) {
    for (int i = 0; i < 3; i++) busy[i] = by_strdup ? (long *)strdup("a counter's text") : xmalloc(16);
}

__attribute__((noinline)) static void make_idle(void) {
    for (int i = 0; i < 3; i++) idle[i] = by_strdup ? (long *)strdup("a counter's text") : xmalloc(16);
}

static int on_one_line(long **blocks, int first) {
    return (uintptr_t)blocks[first] / 64 == (uintptr_t)blocks[first + 1] / 64;
}

static const char *lie(long **blocks) {
    return on_one_line(blocks, 0) || on_one_line(blocks, 1) ? "one line" : "apart";
}

static void *count(void *number) {
    long own = (long)number;
    for (long i = 0; i < 60000000; i++) {
        (*used[own])++;
        elsewhere[own][32]++;
    }
    return NULL;
}

int main(int argc, char **argv) {
    by_strdup = argc > 1 && strcmp(argv[1], "strdup") == 0;
    make_busy();
    make_idle();
    int from = on_one_line(busy, 0) ? 0 : 1;
    pthread_t thread[2];
    for (long i = 0; i < 2; i++) {
        used[i] = busy[from + i];
        pthread_create(&thread[i], NULL, count, (void *)i);
    }
    for (int i = 0; i < 2; i++) pthread_join(thread[i], NULL);
    printf("busy %s, idle %s\n", lie(busy), lie(idle));
    return 0;
}
