/* Threads allocate blocks of several sizes at several call sites, free some,
 * and pass some to each other to free. Counts lines that hold live blocks of
 * two threads, and pages that hold live blocks of two sizes or call sites. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { THREADS = 4, EACH = 3000 };

struct note {
    uintptr_t at;
    int thread, size, site;
    int live;
};

static struct note notes[THREADS][EACH];
static pthread_barrier_t gate;

#define SITE(n) \
    __attribute__((noinline)) static void *site_##n(size_t size) { \
        void *volatile block = malloc(size); \
        return block; \
    }
SITE(0) SITE(1) SITE(2)

static void *work(void *argument) {
    int id = (int)(long)argument;
    static const int sizes[] = {8, 16, 24, 40, 72, 200};
    unsigned seed = (unsigned)id + 1;
    for (int i = 0; i < EACH; i++) {
        struct note *n = &notes[id][i];
        seed = seed * 1103515245u + 12345u;
        n->size = sizes[seed / 65536u % 6];
        n->site = (int)(seed / 1024u % 3);
        n->thread = id;
        void *block = n->site == 0 ? site_0((size_t)n->size)
                    : n->site == 1 ? site_1((size_t)n->size) : site_2((size_t)n->size);
        n->at = (uintptr_t)block;
        n->live = 1;
        /* Frees one of the thread's own blocks, so that blocks are reused. */
        if (i % 3 == 0) {
            struct note *old = &notes[id][seed % (unsigned)(i + 1)];
            if (old->live) free((void *)old->at);
            old->live = 0;
        }
        /* Barriers, so that threads allocate at the same time on any machine. */
        if (i % 100 == 0) pthread_barrier_wait(&gate);
    }
    pthread_barrier_wait(&gate);
    /* Frees some of a neighbour's blocks, then allocates more of its own. */
    struct note *theirs = notes[(id + 1) % THREADS];
    for (int i = 0; i < EACH; i += 2)
        if (theirs[i].live) {
            free((void *)theirs[i].at);
            theirs[i].live = 0;
        }
    pthread_barrier_wait(&gate);
    for (int i = 0; i < EACH; i++) {
        struct note *n = &notes[id][i];
        if (n->live) continue;
        n->at = (uintptr_t)(n->site == 0 ? site_0((size_t)n->size)
                          : n->site == 1 ? site_1((size_t)n->size) : site_2((size_t)n->size));
        n->live = 1;
    }
    /* No thread ends before all are done, so that all blocks belong to living threads. */
    pthread_barrier_wait(&gate);
    return NULL;
}

static int by_address(const void *a, const void *b) {
    const struct note *x = a, *y = b;
    return x->at < y->at ? -1 : x->at > y->at;
}

int main(void) {
    pthread_t thread[THREADS];
    pthread_barrier_init(&gate, NULL, THREADS);
    for (long i = 0; i < THREADS; i++) pthread_create(&thread[i], NULL, work, (void *)i);
    for (int i = 0; i < THREADS; i++) pthread_join(thread[i], NULL);
    struct note *all = &notes[0][0];
    qsort(all, THREADS * EACH, sizeof *all, by_address);
    long threads = 0, sizes = 0, sites = 0;
    for (int i = 0; i + 1 < THREADS * EACH; i++) {
        const struct note *a = &all[i], *b = &all[i + 1];
        if (a->at + (uintptr_t)a->size > b->at) {
            puts("overlap");
            return 1;
        }
        int line = (a->at + (uintptr_t)a->size - 1) / 64 == b->at / 64;
        int page = a->at / 4096 == b->at / 4096;
        threads += line && a->thread != b->thread;
        sizes += page && a->size != b->size;
        sites += page && a->site != b->site;
    }
    printf("threads %ld\nsizes %ld\nsites %ld\n", threads, sizes, sites);
    return 0;
}
