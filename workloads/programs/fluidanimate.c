/* Particles in a grid of cells push each other. Each cell has a lock of its own, taken
 * for every single update, so there are very many small locks and very many lock
 * operations. A thread works on a band of cells; only at the border of two bands do
 * locks and cells of two threads lie on one line.
 * After: PARSEC; SHERIFF section 6.2 (16.7 million lock operations) and 6.1 (one
 * object, under 10 interleavings a line). */
#include "workload.h"

enum { CELLS = 4098 }; /* so that two bands meet within a line */

struct cell {
    pthread_mutex_t lock;
    int64_t density;
} OWN_LINE;

static struct cell *cells;

static OPAQUE void push(long at, int64_t force) {
    struct cell *cell = &cells[(at + CELLS) % CELLS];
    pthread_mutex_lock(&cell->lock); /* touch: lock */
    cell->density += force; /* touch: density */
    pthread_mutex_unlock(&cell->lock);
}

static void work(struct part *part) {
    long first = CELLS * part->id / part->threads, last = CELLS * (part->id + 1) / part->threads;
    for (long step = 0; step < part->size; step++)
        for (long at = first; at < last; at++) {
            int64_t force = (int64_t)(scramble((uint64_t)(at + step)) % 100);
            push(at, force);
            push(at - 1, -force / 2);
            push(at + 1, -force / 3);
        }
}

int main(int argc, char **argv) {
    struct arguments a = read_arguments(argc, argv);
    cells = aligned_alloc(LINE, (CELLS * sizeof *cells + LINE - 1) / LINE * LINE); /* alloc: cells */
    memset(cells, 0, CELLS * sizeof *cells);
    for (long i = 0; i < CELLS; i++) pthread_mutex_init(&cells[i].lock, NULL);
    run_threads(a, work);
    uint64_t sum = 0;
    for (long i = 0; i < CELLS; i++) sum = sum * 31 + (uint64_t)cells[i].density;
    print_checksum(sum);
    free(cells);
    return 0;
}
