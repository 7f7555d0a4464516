/* Blocks of all sizes and alignments with a pattern in each byte that is
 * checked before the block is resized or freed; threads pass blocks to each
 * other and come and go. Ends with "ok", or says what was wrong. */
#define _GNU_SOURCE
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SLOTS = 2048, THREADS = 4, GENERATIONS = 3, STEPS = 20000 };

struct block {
    unsigned char *at;
    size_t size;
    unsigned char pattern;
};

/* The thread that takes a block out of a slot owns the block. */
static struct block *slots[SLOTS];

static void die(const char *what) {
    fprintf(stderr, "wrong: %s\n", what);
    exit(1);
}

static uint64_t next(uint64_t *state) {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    return *state ^= *state << 17;
}

static size_t any_size(uint64_t *state) {
    uint64_t r = next(state);
    switch (r % 16) {
    case 0: return next(state) % 300000;
    case 1: return r % 4096 == 1 ? next(state) % (40 << 20) : next(state) % 20000;
    case 2: case 3: return next(state) % 5000;
    default: return next(state) % 300;
    }
}

static void check(const struct block *b, size_t len) {
    /* Both ends and a sample of the bytes between: nearly as good as all, and faster. */
    for (size_t i = 0; i < len; i += i < 64 || i + 65 > len ? 1 : 61)
        if (b->at[i] != b->pattern) die("a block's bytes changed");
}

static struct block *make(uint64_t *state) {
    struct block *b = malloc(sizeof *b);
    if (b == NULL) die("no memory");
    b->size = any_size(state);
    b->pattern = (unsigned char)next(state);
    size_t align = 16;
    switch (next(state) % 8) {
    case 0:
        align = (size_t)16 << next(state) % 9;
        if (next(state) % 256 == 0) align = (size_t)1 << 20;
        if (posix_memalign((void **)&b->at, align, b->size) != 0) die("posix_memalign");
        break;
    case 1:
        b->at = calloc(1, b->size);
        for (size_t i = 0; b->at != NULL && i < b->size; i++)
            if (b->at[i] != 0) die("calloc gave bytes that are not zero");
        break;
    case 2:
        align = 64;
        b->at = aligned_alloc(align, b->size);
        break;
    default: b->at = malloc(b->size);
    }
    if (b->at == NULL) die("no memory");
    if ((uintptr_t)b->at % align != 0) die("alignment");
    if (malloc_usable_size(b->at) < b->size) die("usable size");
    memset(b->at, b->pattern, b->size);
    return b;
}

static void end(struct block *b) {
    check(b, b->size);
    free(b->at);
    free(b);
}

static void resize(struct block *b, uint64_t *state) {
    size_t size = any_size(state) + 1;
    check(b, b->size);
    unsigned char *at = realloc(b->at, size);
    if (at == NULL) die("no memory");
    b->at = at;
    check(b, size < b->size ? size : b->size);
    b->size = size;
    memset(at, b->pattern, size);
}

static void *work(void *seed) {
    uint64_t state = (uintptr_t)seed * 0x9e3779b97f4a7c15u + 1;
    for (int i = 0; i < STEPS; i++) {
        struct block **slot = &slots[next(&state) % SLOTS];
        struct block *b = __atomic_exchange_n(slot, NULL, __ATOMIC_ACQ_REL);
        if (b != NULL && next(&state) % 4 != 0) {
            end(b);
            b = NULL;
        } else if (b != NULL) {
            resize(b, &state);
        } else {
            b = make(&state);
        }
        if (b != NULL) {
            b = __atomic_exchange_n(slot, b, __ATOMIC_ACQ_REL);
            if (b != NULL) end(b);
        }
    }
    return NULL;
}

static void odd_requests(void) {
    void *p = malloc(0), *q = malloc(0);
    if (p == NULL || p == q) die("malloc(0)");
    free(p);
    free(q);
    free(NULL);
    volatile size_t huge = SIZE_MAX / 2;
    errno = 0;
    if (malloc(huge) != NULL || errno != ENOMEM) die("a huge request");
    if (calloc(huge, 4) != NULL || reallocarray(NULL, huge, 4) != NULL) die("an overflow");
    if (posix_memalign(&p, 24, 8) != EINVAL || posix_memalign(&p, 4, 8) != EINVAL)
        die("an odd alignment");
    for (size_t align = 16; align <= (size_t)16 << 20; align *= 2) {
        p = memalign(align, 100);
        if (p == NULL || (uintptr_t)p % align != 0) die("memalign");
        memset(p, 1, 100);
        free(p);
    }
    p = valloc(10);
    q = pvalloc(10);
    if ((uintptr_t)p % 4096 != 0 || (uintptr_t)q % 4096 != 0) die("valloc");
    if (malloc_usable_size(q) < 4096) die("pvalloc");
    free(p);
    free(q);
    /* Growth in small steps through every kind of block. */
    size_t size = 1;
    unsigned char *g = malloc(1);
    g[0] = 42;
    while (size < (size_t)80 << 20) {
        size_t larger = size + size / 3 + 7;
        g = realloc(g, larger);
        if (g == NULL || g[0] != 42 || (size > 1 && g[size - 1] != 43)) die("growth");
        size = larger;
        g[size - 1] = 43;
    }
    while (size > 10) {
        size /= 3;
        g = realloc(g, size);
        if (g == NULL || g[0] != 42) die("shrinking");
    }
    free(g);
    malloc_trim(0);
}

int main(void) {
    odd_requests();
    for (uintptr_t generation = 0; generation < GENERATIONS; generation++) {
        pthread_t thread[THREADS];
        for (uintptr_t i = 0; i < THREADS; i++)
            if (pthread_create(&thread[i], NULL, work, (void *)(generation * THREADS + i + 1)) != 0)
                die("pthread_create");
        for (int i = 0; i < THREADS; i++) pthread_join(thread[i], NULL);
        malloc_trim(0);
    }
    for (int i = 0; i < SLOTS; i++)
        if (slots[i] != NULL) end(slots[i]);
    puts("ok");
    return 0;
}
