/* The usual allocator benchmarks, written from their descriptions: each is one loop
 * that stresses one property. `loops NAME THREADS ROUNDS` prints the seconds that it took
 * and its greatest resident memory, in KiB.
 *
 * larson     threads replace random blocks of theirs; then they end, and new
 *            threads go on with the blocks (Larson and Krishnan, ISMM 1998)
 * scratch    a block from the main thread is freed by each worker, which then
 *            writes blocks of its own: passive false sharing (Hoard, section 4)
 * thrash     each worker writes blocks of its own again and again: active false
 *            sharing (Hoard, section 4)
 * xmalloc    half of the threads allocate, the others free (Lever and Boreham)
 * sh6        runs of blocks of many sizes, freed in part in order and in part
 *            in reverse (the pattern of MicroQuill's benchmark)
 * single     one thread, random sizes, random lifetimes */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MOST_THREADS = 64, LIVE = 1000, BATCH = 256, QUEUE = 64 };

static long threads, rounds;

static uint32_t next(uint32_t *state) {
    *state ^= *state << 13;
    *state ^= *state >> 17;
    return *state ^= *state << 5;
}

/* Not by getrusage, which includes the memory of the process before it executed this program. */
static long most_resident(void) {
    char line[256];
    long kib = 0;
    FILE *status = fopen("/proc/self/status", "r");
    while (status != NULL && fgets(line, sizeof line, status) != NULL)
        if (sscanf(line, "VmHWM: %ld", &kib) == 1) break;
    if (status != NULL) fclose(status);
    return kib;
}

static void *must(void *block) {
    if (block == NULL) abort();
    return block;
}

static void in_threads(void *(*work)(void *)) {
    pthread_t thread[MOST_THREADS];
    for (long i = 0; i < threads; i++)
        if (pthread_create(&thread[i], NULL, work, (void *)i) != 0) abort();
    for (long i = 0; i < threads; i++) pthread_join(thread[i], NULL);
}

/* larson */
static char *inherited[MOST_THREADS][LIVE];

static void *larson_worker(void *number) {
    char **block = inherited[(long)number];
    uint32_t seed = 77u + (uint32_t)(long)number;
    for (long i = 0; i < 20000; i++) {
        uint32_t at = next(&seed) % LIVE;
        free(block[at]);
        size_t size = 8 + next(&seed) % 500;
        block[at] = must(malloc(size));
        block[at][0] = block[at][size - 1] = 1;
    }
    return NULL;
}

static void larson(void) {
    for (long i = 0; i < rounds; i++) in_threads(larson_worker);
}

/* scratch and thrash */
static char *given[MOST_THREADS];

static void write_blocks(long repeats) {
    for (long i = 0; i < repeats; i++) {
        volatile char *block = must(malloc(8));
        for (int j = 0; j < 200; j++)
            for (int k = 0; k < 8; k++) block[k]++;
        free((void *)block);
    }
}

static void *scratch_worker(void *number) {
    free(given[(long)number]);
    write_blocks(rounds * 100);
    return NULL;
}

static void scratch(void) {
    for (long i = 0; i < threads; i++) given[i] = must(malloc(8));
    in_threads(scratch_worker);
}

static void *thrash_worker(void *unused) {
    write_blocks(rounds * 100);
    return unused;
}

static void thrash(void) { in_threads(thrash_worker); }

/* xmalloc: batches go round through a queue */
static void *queue[QUEUE][BATCH];
static int queued;
static long left;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t some = PTHREAD_COND_INITIALIZER, room = PTHREAD_COND_INITIALIZER;

static void *xmalloc_worker(void *number) {
    int allocates = (long)number % 2 == 0;
    uint32_t seed = 5u + (uint32_t)(long)number;
    void *batch[BATCH];
    for (;;) {
        if (allocates)
            for (int i = 0; i < BATCH; i++) {
                batch[i] = must(malloc(16 + next(&seed) % 240));
                *(char *)batch[i] = 1;
            }
        pthread_mutex_lock(&lock);
        if (allocates) {
            while (queued == QUEUE && left > 0) pthread_cond_wait(&room, &lock);
            if (left <= 0) {
                pthread_cond_broadcast(&some);
                pthread_mutex_unlock(&lock);
                for (int i = 0; i < BATCH; i++) free(batch[i]);
                return NULL;
            }
            left--;
            memcpy(queue[queued++], batch, sizeof batch);
            pthread_cond_signal(&some);
            pthread_mutex_unlock(&lock);
        } else {
            while (queued == 0 && left > 0) pthread_cond_wait(&some, &lock);
            if (queued == 0) {
                pthread_cond_broadcast(&room);
                pthread_mutex_unlock(&lock);
                return NULL;
            }
            memcpy(batch, queue[--queued], sizeof batch);
            pthread_cond_signal(&room);
            pthread_mutex_unlock(&lock);
            for (int i = 0; i < BATCH; i++) free(batch[i]);
        }
    }
}

static void xmalloc(void) {
    left = rounds * 50;
    if (threads < 2) threads = 2;
    in_threads(xmalloc_worker);
}

/* sh6 */
static void *sh6_worker(void *unused) {
    enum { RUN = 600 };
    void *run[RUN];
    for (long i = 0; i < rounds; i++)
        for (size_t size = 8; size < 1000; size += size / 3 + 5) {
            for (int j = 0; j < RUN; j++) {
                run[j] = must(malloc(size + (size_t)j % 7));
                *(char *)run[j] = 1;
            }
            for (int j = 0; j < RUN; j += 2) free(run[j]);
            for (int j = RUN - 1; j > 0; j -= 2) free(run[j]);
        }
    return unused;
}

static void sh6(void) { in_threads(sh6_worker); }

/* single */
static void single(void) {
    enum { HELD = 50000 };
    static void *held[HELD];
    uint32_t seed = 9;
    for (long i = 0; i < rounds * 2000; i++) {
        uint32_t at = next(&seed) % HELD, r = next(&seed);
        free(held[at]);
        size_t size = r % 100 == 0 ? next(&seed) % 20000 : r % 4 == 0 ? next(&seed) % 1000 : next(&seed) % 100;
        held[at] = must(malloc(size));
        memset(held[at], 1, size);
    }
    for (int i = 0; i < HELD; i++) free(held[i]);
}

static const struct {
    const char *name;
    void (*run)(void);
} all[] = {{"larson", larson}, {"scratch", scratch}, {"thrash", thrash},
           {"xmalloc", xmalloc}, {"sh6", sh6}, {"single", single}};

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

int main(int argc, char **argv) {
    if (argc == 4) {
        threads = atol(argv[2]);
        rounds = atol(argv[3]);
    }
    for (size_t i = 0; i < sizeof all / sizeof *all && threads > 0 && threads <= MOST_THREADS && rounds > 0; i++)
        if (strcmp(argv[1], all[i].name) == 0) {
            double start = now();
            all[i].run();
            double seconds = now() - start;
            printf("%.4f %ld\n", seconds, most_resident());
            return 0;
        }
    fprintf(stderr, "usage: %s larson|scratch|thrash|xmalloc|sh6|single THREADS ROUNDS\n", argv[0]);
    return 2;
}
