/* Packs knapsacks by branch and bound; each thread searches its own orders. The
 * results are an array in the stack frame of the function that starts the
 * threads. A search reads and writes its result at each node, and the results of
 * neighbouring threads are on one cache line. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { MAX_THREADS = 16, ITEMS = 16 };

struct result {
#if FIXED
    _Alignas(64)
#endif
    uint64_t nodes;
    uint64_t pruned;
    uint32_t best;
    uint32_t capacity;
};

struct item {
    uint32_t weight;
    uint32_t value;
};

struct order {
    struct item items[ITEMS];
    uint32_t value_left[ITEMS + 1]; /* the value of all items from here on */
};

struct job {
    int id;
    long orders;
    struct result *result;
    uint64_t total;
};

static void new_order(struct order *o, uint32_t seed) {
    o->value_left[ITEMS] = 0;
    for (int i = ITEMS - 1; i >= 0; i--) {
        seed = seed * 1664525u + 1013904223u;
        o->items[i].weight = 10 + (seed >> 27);
        o->items[i].value = 20 + (seed >> 20 & 31);
        o->value_left[i] = o->value_left[i + 1] + o->items[i].value;
    }
}

static void search(struct result *r, const struct order *o, int i, uint32_t weight, uint32_t value) {
    r->nodes++;
    if (value > r->best) r->best = value;
    if (i == ITEMS) return;
    if (value + o->value_left[i] <= r->best) {
        r->pruned++;
        return;
    }
    if (weight + o->items[i].weight <= r->capacity)
        search(r, o, i + 1, weight + o->items[i].weight, value + o->items[i].value);
    search(r, o, i + 1, weight, value);
}

static void *pack_orders(void *argument) {
    struct job *job = argument;
    struct order order;
    uint64_t total = 0;
    for (long n = 0; n < job->orders; n++) {
        new_order(&order, (uint32_t)n * 16 + (uint32_t)job->id);
        job->result->best = 0;
        search(job->result, &order, 0, 0, 0);
        total += job->result->best;
    }
    job->total = total;
    return NULL;
}

static uint64_t pack_all(int threads, long orders) {
    _Alignas(64) struct result results[MAX_THREADS] = {{0}};
    struct job jobs[MAX_THREADS];
    pthread_t workers[MAX_THREADS];
    uint64_t sum = 0;
    for (int t = 0; t < threads; t++) {
        results[t].capacity = 200;
        jobs[t] = (struct job){t, orders, &results[t], 0};
        pthread_create(&workers[t], NULL, pack_orders, &jobs[t]);
    }
    for (int t = 0; t < threads; t++) {
        pthread_join(workers[t], NULL);
        sum = sum * 31 + jobs[t].total + 7 * results[t].nodes + 13 * results[t].pruned;
    }
    return sum;
}

int main(int argc, char **argv) {
    int threads = argc > 1 ? atoi(argv[1]) : 2;
    long orders = argc > 2 ? atol(argv[2]) : 12000;
    if (threads < 1 || threads > MAX_THREADS || orders < 1) {
        fprintf(stderr, "usage: %s THREADS ORDERS\n", argv[0]);
        return 2;
    }
    printf("checksum %016lx\n", (unsigned long)pack_all(threads, orders));
    return 0;
}
