/* Each thread fills its own few bytes of one block by `memset`. The C library's code
 * for that has no symbol of its own, and on recent CPUs it writes with one instruction,
 * of which a mask chooses the bytes. */
#include "workload.h"

enum { BLOCK = 16 };

struct cell {
    unsigned char bytes[BLOCK];
} OWN_LINE;

ON_LINE struct cell cells[MAX_THREADS];

/* The compiler must not know it, or it would write the block itself. */
static volatile size_t length ON_LINE = BLOCK;

static OPAQUE void fill(struct cell *cell, long rounds, size_t bytes) {
    for (long i = rounds; i > 0; i--) memset(cell->bytes, (int)i, bytes); /* touch: bytes */
}

static uint64_t filled[MAX_THREADS][LINE / sizeof(uint64_t)] ON_LINE;

static void work(struct part *part) {
    long rounds = part->end - part->begin;
    fill(&cells[part->id], rounds, length);
    filled[part->id][0] = (uint64_t)rounds;
}

int main(int argc, char **argv) {
    struct arguments a = read_arguments(argc, argv);
    check_layout(on_one_line(&cells[0], &cells[1]) != IS_FIXED, "cells");
    run_threads(a, work);
    /* Each thread fills its block with ones at last. */
    uint64_t sum = 0;
    for (int byte = 0; byte < BLOCK; byte++) sum = sum * 31 + cells[0].bytes[byte];
    for (long i = 0; i < a.threads; i++) sum += filled[i][0];
    print_checksum(sum);
    return 0;
}
