/* A table of sessions with a mutex in each bucket. The number of a session names
 * its worker, so neighbouring buckets belong to different workers. A bucket is 56
 * bytes, and so most cache lines hold parts of two buckets. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { MAX_THREADS = 16, BUCKETS = 64 };

struct session {
    struct session *next;
    uint64_t number;
    uint64_t requests;
};

struct bucket {
    pthread_mutex_t lock;
    struct session *first;
    uint64_t touched;
#if FIXED
} __attribute__((aligned(64)));
#else
};
#endif

static struct bucket *table;
static long requests;
static int threads;

static void touch(uint64_t number, uint64_t request) {
    struct bucket *b = &table[number % BUCKETS];
    pthread_mutex_lock(&b->lock);
    for (struct session *s = b->first; s != NULL; s = s->next) {
        if (s->number == number) {
            s->requests += request & 15;
            b->touched++;
            break;
        }
    }
    pthread_mutex_unlock(&b->lock);
}

static void add_session(uint64_t number) {
    struct bucket *b = &table[number % BUCKETS];
    struct session *s = aligned_alloc(64, 64);
    *s = (struct session){b->first, number, 0};
    b->first = s;
}

static void *work(void *argument) {
    uint64_t id = (uint64_t)(intptr_t)argument;
    uint64_t sessions = 2 * BUCKETS / (uint64_t)threads;
    for (long i = 0; i < requests; i++) {
        uint64_t nth = (uint64_t)i * 5 % sessions;
        touch(nth * (uint64_t)threads + id, (uint64_t)i);
    }
    return NULL;
}

int main(int argc, char **argv) {
    threads = argc > 1 ? atoi(argv[1]) : 4;
    requests = argc > 2 ? atol(argv[2]) : 22000000;
    if (threads < 1 || threads > MAX_THREADS || requests < 1) {
        fprintf(stderr, "usage: %s THREADS REQUESTS\n", argv[0]);
        return 2;
    }
    table = aligned_alloc(64, BUCKETS * sizeof *table);
    for (int b = 0; b < BUCKETS; b++) {
        pthread_mutex_init(&table[b].lock, NULL);
        table[b].first = NULL;
        table[b].touched = 0;
    }
    for (uint64_t number = 0; number < 2 * BUCKETS; number++)
        add_session(number);
    pthread_t workers[MAX_THREADS];
    for (int t = 0; t < threads; t++)
        pthread_create(&workers[t], NULL, work, (void *)(intptr_t)t);
    for (int t = 0; t < threads; t++)
        pthread_join(workers[t], NULL);
    uint64_t sum = 0;
    for (int b = 0; b < BUCKETS; b++) {
        sum = sum * 31 + table[b].touched;
        for (struct session *s = table[b].first, *next; s != NULL; s = next) {
            sum = sum * 31 + s->requests;
            next = s->next;
            free(s);
        }
    }
    printf("checksum %016lx\n", (unsigned long)sum);
    free(table);
    return 0;
}
