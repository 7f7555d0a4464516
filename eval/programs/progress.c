/* Linear regression as in Plastic's Figure 1, which says how far it was when: the sums
 * of each thread lie in a structure of 64 bytes that is not aligned, or is if the last
 * argument is `fixed`. Arguments: threads, points in all, `shared` or `fixed`. Written
 * to standard output: the sums; to standard error: a line with a moment in
 * nanoseconds since `main` for every CHUNK points of a thread. */
#define _GNU_SOURCE 1
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { POINTS = 1 << 16, CHUNK = 1 << 18, THREADS = 64, STAMPS = 1 << 14 };

struct point {
    signed char x, y;
};

struct lreg_args {
    const struct point *points;
    long count, n, SX, SY, SXX, SYY, SXY;
};

struct part {
    struct lreg_args *args;
    uint64_t *stamps;
    long stamped;
} __attribute__((aligned(128)));

static struct point *points;
static uint64_t began;
static pthread_barrier_t start;

static uint64_t now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Not inlined: the sums have to be in memory after each point. */
static __attribute__((noinline)) void add_points(struct lreg_args *a, long from, long to)
{
    for (long i = from; i < to; i++) {
        struct point p = a->points[i % POINTS];
        a->n++;
        a->SX += p.x;
        a->SXX += p.x * p.x;
        a->SY += p.y;
        a->SYY += p.y * p.y;
        a->SXY += p.x * p.y;
        __asm__ volatile("" ::: "memory");
    }
}

static void *regress(void *argument)
{
    struct part *part = argument;
    pthread_barrier_wait(&start);
    for (long i = 0; i < part->args->count; i += CHUNK) {
        long to = i + CHUNK < part->args->count ? i + CHUNK : part->args->count;
        add_points(part->args, i, to);
        if (part->stamped < STAMPS)
            part->stamps[part->stamped++] = now() - began;
    }
    return NULL;
}

int main(int argc, char **argv)
{
    static struct part parts[THREADS];
    pthread_t all[THREADS];
    began = now();
    long threads = argc == 4 ? atol(argv[1]) : 0;
    if (threads < 1 || threads > THREADS) {
        fprintf(stderr, "usage: %s THREADS POINTS shared|fixed\n", argv[0]);
        return 2;
    }
    int fixed = strcmp(argv[3], "fixed") == 0;
    points = malloc(POINTS * sizeof *points);
    for (long i = 0; i < POINTS; i++) {
        points[i].x = (signed char)(i * 7);
        points[i].y = (signed char)(i * 13 >> 3);
    }
    size_t bytes = (size_t)threads * sizeof(struct lreg_args);
    char *memory = aligned_alloc(128, (bytes + 64 + 127) / 128 * 128);
    struct lreg_args *args = (struct lreg_args *)(memory + (fixed ? 0 : 32));
    memset(memory, 0, bytes + 64);
    pthread_barrier_init(&start, NULL, (unsigned)threads);
    for (long i = 0; i < threads; i++) {
        args[i].points = points;
        args[i].count = atol(argv[2]) / threads;
        parts[i].args = &args[i];
        parts[i].stamps = calloc(STAMPS, sizeof(uint64_t));
        pthread_create(&all[i], NULL, regress, &parts[i]);
    }
    struct lreg_args sum = {0};
    for (long i = 0; i < threads; i++) {
        pthread_join(all[i], NULL);
        sum.n += args[i].n;
        sum.SX += args[i].SX;
        sum.SY += args[i].SY;
        sum.SXX += args[i].SXX;
        sum.SYY += args[i].SYY;
        sum.SXY += args[i].SXY;
    }
    printf("%ld %ld %ld %ld %ld %ld\n", sum.n, sum.SX, sum.SY, sum.SXX, sum.SYY, sum.SXY);
    for (long i = 0; i < threads; i++)
        for (long j = 0; j < parts[i].stamped; j++)
            fprintf(stderr, "%lu\n", (unsigned long)parts[i].stamps[j]);
    return 0;
}
