/* Counts the bases of many short reads of a genome. The counts are a matrix with
 * a row for each thread; a row has four numbers and is 16 bytes, so the rows of
 * four threads are on one cache line. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { MAX_THREADS = 32, BASES = 4, READ = 32, READS = 512 };

#if FIXED
enum { ROW = 16 }; /* 64 bytes */
#else
enum { ROW = BASES };
#endif

static _Alignas(64) uint32_t counts[MAX_THREADS][ROW];
static char genome[READS + READ];
static long rounds;

static int base_of(char letter) {
    return letter >> 1 & 3; /* A 0, C 1, T 2, G 3 */
}

/* Counts the rarer bases of a read, and whether it holds a repeat. */
static void count_read(uint32_t *row, const char *read) {
    int repeat = 0;
    for (int i = 0; i < READ; i++) {
        if (i >= 4 && read[i] == read[i - 1] && read[i] == read[i - 4]) repeat = 1;
        if (i % 8 == 0) row[base_of(read[i])]++;
    }
    if (repeat) row[base_of(read[0])]++;
}

static void *count(void *argument) {
    int id = (int)(intptr_t)argument;
    for (long r = 0; r < rounds; r++)
        for (int start = 0; start < READS; start++)
            count_read(counts[id], genome + start);
    return NULL;
}

int main(int argc, char **argv) {
    int threads = argc > 1 ? atoi(argv[1]) : 8;
    rounds = argc > 2 ? atol(argv[2]) : 18000;
    if (threads < 1 || threads > MAX_THREADS || rounds < 1) {
        fprintf(stderr, "usage: %s THREADS ROUNDS\n", argv[0]);
        return 2;
    }
    for (uint32_t i = 0; i < READS + READ; i++)
        genome[i] = "ACGT"[i * 2654435761u >> 30];
    pthread_t workers[MAX_THREADS];
    for (int t = 0; t < threads; t++)
        pthread_create(&workers[t], NULL, count, (void *)(intptr_t)t);
    uint64_t sum = 0;
    for (int t = 0; t < threads; t++) {
        pthread_join(workers[t], NULL);
        for (int b = 0; b < BASES; b++)
            sum = sum * 31 + counts[t][b];
    }
    printf("checksum %016lx\n", (unsigned long)sum);
    return 0;
}
