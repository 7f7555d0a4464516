/* A cache in shards, one shard for each tenant, each with its own spinlock and
 * its own totals. A thread works for one tenant, so no lock is ever contended,
 * but the locks and totals of neighbouring shards are on one cache line. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { MAX_THREADS = 16, SLOTS = 256 };

struct shard {
    atomic_flag lock;
    uint32_t entries;
    uint32_t evicted;
    uint32_t newest;
#if FIXED
    char padding[64 - sizeof(atomic_flag) - 3 - 3 * sizeof(uint32_t)];
#endif
};

static _Alignas(64) struct shard shards[MAX_THREADS];
static _Alignas(64) uint64_t slots_of[MAX_THREADS][SLOTS];
static long operations;

static void lock_shard(struct shard *s) {
    while (atomic_flag_test_and_set_explicit(&s->lock, memory_order_acquire)) {
    }
}

static void unlock_shard(struct shard *s) {
    atomic_flag_clear_explicit(&s->lock, memory_order_release);
}

static void insert(int tenant, uint64_t key) {
    struct shard *s = &shards[tenant];
    uint64_t *slot = &slots_of[tenant][key * 0x9e3779b97f4a7c15u >> 56];
    lock_shard(s);
    if (*slot == 0)
        s->entries++;
    else if (*slot != key)
        s->evicted++;
    *slot = key;
    s->newest = (uint32_t)key;
    unlock_shard(s);
}

static void *serve_tenant(void *argument) {
    int tenant = (int)(intptr_t)argument;
    uint64_t key = 88172645463325252u + (uint64_t)tenant;
    for (long i = 0; i < operations; i++) {
        key = key * 6364136223846793005u + 1442695040888963407u;
        insert(tenant, key);
    }
    return NULL;
}

int main(int argc, char **argv) {
    int threads = argc > 1 ? atoi(argv[1]) : 2;
    operations = argc > 2 ? atol(argv[2]) : 25000000;
    if (threads < 1 || threads > MAX_THREADS || operations < 1) {
        fprintf(stderr, "usage: %s THREADS OPERATIONS\n", argv[0]);
        return 2;
    }
    pthread_t workers[MAX_THREADS];
    for (int t = 0; t < threads; t++)
        atomic_flag_clear(&shards[t].lock);
    for (int t = 0; t < threads; t++)
        pthread_create(&workers[t], NULL, serve_tenant, (void *)(intptr_t)t);
    uint64_t sum = 0;
    for (int t = 0; t < threads; t++) {
        pthread_join(workers[t], NULL);
        struct shard *s = &shards[t];
        lock_shard(s);
        sum = sum * 31 + s->entries + 7ul * s->evicted + 13ul * s->newest;
        unlock_shard(s);
    }
    printf("checksum %016lx\n", (unsigned long)sum);
    return 0;
}
