/* A packet receiver and some packet scanners. The scanners look at the log level
 * for each packet; it never changes. The receiver counts its packets beside it
 * in the same struct, and so takes the line with the log level from them. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_THREADS = 16, RECENT = 1024 };

struct monitor {
    atomic_int log_level;
#if FIXED
    _Alignas(64)
#endif
    atomic_ulong packets;
    atomic_ulong broadcasts;
};

/* What a thread works on; nobody shares it. */
struct work {
    _Alignas(64) atomic_ulong scanned;
    uint64_t recent[RECENT];
};

static _Alignas(64) struct monitor monitor;
static long packets;

static uint64_t packet(long i) {
    uint64_t p = (uint64_t)i;
    for (int k = 0; k < 3; k++) {
        p *= 0x9e3779b97f4a7c15u;
        p ^= p >> 29;
    }
    return p;
}

static void *receive(void *argument) {
    struct work *work = argument;
    for (long i = 0; i < packets; i++) {
        uint64_t p = packet(i);
        work->recent[p % RECENT] ^= p;
        atomic_fetch_add_explicit(&monitor.packets, 1, memory_order_relaxed);
        if (p >> 62 == 0) atomic_fetch_add_explicit(&monitor.broadcasts, 1, memory_order_relaxed);
    }
    return NULL;
}

static void *scan(void *argument) {
    struct work *work = argument;
    for (long i = 0; i < packets; i++) {
        uint64_t p = packet(i);
        uint64_t *seen = &work->recent[p % RECENT];
        if (atomic_load_explicit(&monitor.log_level, memory_order_relaxed) > 1)
            fprintf(stderr, "packet %lx\n", (unsigned long)p);
        *seen = *seen * 31 + (p >> 40);
        atomic_fetch_add_explicit(&work->scanned, 1, memory_order_relaxed);
    }
    return NULL;
}

int main(int argc, char **argv) {
    int threads = argc > 1 ? atoi(argv[1]) : 2;
    packets = argc > 2 ? atol(argv[2]) : 45000000;
    if (threads < 2 || threads > MAX_THREADS || packets < 1) {
        fprintf(stderr, "usage: %s THREADS PACKETS (at least 2 threads)\n", argv[0]);
        return 2;
    }
    atomic_store(&monitor.log_level, getenv("SCAN_LOG") != NULL ? 2 : 0);
    pthread_t workers[MAX_THREADS];
    struct work *work[MAX_THREADS];
    for (int t = 0; t < threads; t++) {
        work[t] = aligned_alloc(64, sizeof *work[t]);
        memset(work[t], 0, sizeof *work[t]);
        pthread_create(&workers[t], NULL, t == 0 ? receive : scan, work[t]);
    }
    uint64_t sum = 0;
    for (int t = 0; t < threads; t++) {
        pthread_join(workers[t], NULL);
        for (int i = 0; i < RECENT; i++)
            sum = sum * 31 + work[t]->recent[i];
        sum += atomic_load(&work[t]->scanned);
        free(work[t]);
    }
    sum += monitor.packets + 3 * monitor.broadcasts;
    printf("checksum %016lx\n", (unsigned long)sum);
    return 0;
}
