/* Shared by all workloads: reading `THREADS SIZE`, starting threads at one moment,
 * the checksum, and a check of the memory layout. Included by the workloads only, C
 * and C++. Nothing here may be written by a running thread, or it would add sharing
 * of its own. */
#ifndef WORKLOAD_H
#define WORKLOAD_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE 1
#endif
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LINE = 64, MAX_THREADS = 64 };

/* In the fixed variant, such data have lines of their own. */
#ifdef FIXED
#define OWN_LINE __attribute__((aligned(64)))
#define IS_FIXED 1
#else
#define OWN_LINE
#define IS_FIXED 0
#endif

#define ON_LINE __attribute__((aligned(64)))
#define OPAQUE __attribute__((noinline))

/* One thread's part of the work: of `size` items, `begin` to `end`. */
struct part {
    long id, threads, size, begin, end;
    void (*work)(struct part *);
    pthread_barrier_t *start;
} ON_LINE;

/* For workloads in which one thread handles all items in its own way: the part of
 * thread `id` if the threads from 1 on divide the items. */
static inline void divide_among_others(struct part *part) {
    long others = part->threads - 1, id = part->id - 1;
    part->begin = part->size * id / others;
    part->end = part->size * (id + 1) / others;
}

struct arguments {
    long threads, size;
};

static inline struct arguments read_arguments(int argc, char **argv) {
    struct arguments a = {0, 0};
    if (argc == 3) {
        a.threads = atol(argv[1]);
        a.size = atol(argv[2]);
    }
    if (a.threads < 1 || a.threads > MAX_THREADS || a.size < 1) {
        fprintf(stderr, "usage: %s THREADS (1-%d) SIZE\n", argv[0], MAX_THREADS);
        exit(2);
    }
    return a;
}

static inline void *run_part(void *argument) {
    struct part *part = (struct part *)argument;
    pthread_barrier_wait(part->start);
    part->work(part);
    return NULL;
}

/* Divides `size` items among the threads, starts them together and waits. */
static inline void run_threads(struct arguments a, void (*work)(struct part *)) {
    pthread_t thread[MAX_THREADS];
    struct part part[MAX_THREADS];
    pthread_barrier_t start;
    pthread_barrier_init(&start, NULL, (unsigned)a.threads);
    for (long i = 0; i < a.threads; i++) {
        part[i].id = i;
        part[i].threads = a.threads;
        part[i].size = a.size;
        part[i].begin = a.size * i / a.threads;
        part[i].end = a.size * (i + 1) / a.threads;
        part[i].work = work;
        part[i].start = &start;
        if (pthread_create(&thread[i], NULL, run_part, &part[i]) != 0) {
            fprintf(stderr, "cannot create thread %ld\n", i);
            exit(3);
        }
    }
    for (long i = 0; i < a.threads; i++) pthread_join(thread[i], NULL);
    pthread_barrier_destroy(&start);
}

/* A number that looks random and depends on `n` alone. */
static inline uint64_t scramble(uint64_t n) {
    n = (n ^ (n >> 31)) * 0x7fb5d329728ea185u;
    n = (n ^ (n >> 27)) * 0x81dadef4bc2dd44du;
    return n ^ (n >> 33);
}

static inline void print_checksum(uint64_t sum) {
    printf("checksum %016lx\n", (unsigned long)sum);
}

/* Private memory that a thread writes beside the shared data, as real code does:
 * without such writes, the store buffer would hide the sharing. */
enum { JOURNAL = 64 };

static inline uint64_t *new_journal(void) {
    uint64_t *journal = (uint64_t *)aligned_alloc(LINE, JOURNAL * sizeof(uint64_t));
    if (journal == NULL) abort();
    memset(journal, 0, JOURNAL * sizeof(uint64_t));
    return journal;
}

/* Waits a little in a spin loop, and then yields the CPU, which the other thread may
 * need. `spins` counts the waits so far. */
static inline void be_patient(int *spins) {
    __builtin_ia32_pause();
    if (++*spins % 1024 == 0) sched_yield();
}

static inline int on_one_line(const void *a, const void *b) {
    return (uintptr_t)a / LINE == (uintptr_t)b / LINE;
}

/* Checks, if WORKLOAD_CHECK is set, that the layout is that of the variant. Off by
 * default: a remedy may change the layout, and the program must not fail then. */
static inline void check_layout(int as_wanted, const char *what) {
    if (!as_wanted && getenv("WORKLOAD_CHECK") != NULL) {
        fprintf(stderr, "layout: %s\n", what);
        exit(4);
    }
}

/* Prepares the heap so that the next `malloc(size)` returns an address `offset` (a
 * multiple of 16) bytes into a line, if the allocator places blocks as glibc does:
 * one after the other, each with 8 bytes before it, and their sum rounded up to
 * 16. */
static inline void lead_heap_to(size_t size, size_t offset) {
    for (int tries = 0; tries < 16; tries++) {
        void *volatile probe = malloc(size);
        size_t at = (uintptr_t)probe % LINE;
        if (at == offset) {
            free(probe);
            return;
        }
        /* The misplaced block is kept, or malloc would return it again. A spacer of 32
         * to 80 bytes moves the next one to the wanted offset. */
        size_t next = at + (size + 8 + 15) / 16 * 16;
        size_t gap = (offset - next) % LINE;
        void *volatile spacer = malloc((gap < 32 ? gap + 64 : gap) - 8);
        (void)spacer;
    }
}

#endif
