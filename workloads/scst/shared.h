/* Shared by the four programs of this folder: arguments, memory that the first thread
 * allocates for all, workers, and printed facts. The first thread is worker 0, as in
 * the programs of the paper: it allocates everything before the others start. Nothing
 * here is written while workers run. */
#ifndef SHARED_H
#define SHARED_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE 1
#endif
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_THREADS = 64 };

#define OPAQUE __attribute__((noinline))

static inline void *checked(void *memory) {
    if (memory == NULL) {
        fputs("out of memory\n", stderr);
        exit(3);
    }
    return memory;
}

static inline size_t bytes_of(long count, size_t each) {
    if (count < 0) abort();
    return (size_t)count * each;
}

/* Memory for `count` elements. A macro, so that malloc is called in the code that needs
 * the memory: that call is the object's call site. */
#define NEW(type, count) ((type *)checked(malloc(bytes_of(count, sizeof(type)))))

struct arguments {
    int threads;
    long size;
    /* The variant's name, or NULL. */
    const char *variant;
};

static inline struct arguments read_arguments(int argc, char **argv, long least, long most) {
    struct arguments a = {0, 0, argc == 4 ? argv[3] : NULL};
    if (argc == 3 || argc == 4) {
        a.threads = atoi(argv[1]);
        a.size = atol(argv[2]);
    }
    if (a.threads < 1 || a.threads > MAX_THREADS || a.size < least || a.size > most) {
        fprintf(stderr, "usage: %s THREADS (1-%d) SIZE (%ld-%ld)\n", argv[0], MAX_THREADS, least,
                most);
        exit(2);
    }
    return a;
}

/* One worker of `run_workers`. */
struct worker {
    void (*work)(int id);
    int id;
};

static inline void *run_worker(void *argument) {
    struct worker *worker = (struct worker *)argument;
    worker->work(worker->id);
    return NULL;
}

/* Runs `work` with the numbers from 0 to `threads` - 1, the first on this thread. */
static inline void run_workers(int threads, void (*work)(int id)) {
    pthread_t thread[MAX_THREADS];
    struct worker worker[MAX_THREADS];
    for (int i = 1; i < threads; i++) {
        worker[i].work = work;
        worker[i].id = i;
        if (pthread_create(&thread[i], NULL, run_worker, &worker[i]) != 0) {
            fprintf(stderr, "cannot create thread %d\n", i);
            exit(3);
        }
    }
    work(0);
    for (int i = 1; i < threads; i++) pthread_join(thread[i], NULL);
}

/* Called between two tasks. With fewer CPUs than workers, the first worker to run would
 * otherwise take all tasks. */
static inline void let_others_run(void) { sched_yield(); }

/* A number that looks random and depends on `n` alone. */
static inline uint64_t scramble(uint64_t n) {
    n += 0x9e3779b97f4a7c15u;
    n = (n ^ (n >> 30)) * 0xbf58476d1ce4e5b9u;
    n = (n ^ (n >> 27)) * 0x94d049bb133111ebu;
    return n ^ (n >> 31);
}

/* Adds `value` to a sum whose terms come in a fixed order. */
static inline uint64_t mix(uint64_t sum, uint64_t value) {
    return scramble(sum ^ (value + (sum << 6) + (sum >> 2)));
}

static inline uint64_t bits_of(double value) {
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline void print_checksum(uint64_t sum) {
    printf("checksum %016lx\n", (unsigned long)sum);
}

/* A property of the result whose right value is known. */
static inline void print_fact(const char *name, double value) {
    printf("%s %.12g\n", name, value);
}

/* Whether to compute more of the result than its checksum: this costs accesses that are
 * not the algorithm's. */
static inline int wants_check(void) { return getenv("WORKLOAD_CHECK") != NULL; }

#endif
