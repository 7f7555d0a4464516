/* Elements swap their places at random, by atomic exchanges, as in simulated annealing
 * of a chip's layout. Neighbouring places share lines, but the next line is chosen by
 * chance, and none is used often. The final place of an element depends on the timing;
 * that none is lost does not. The fixed variant gives each place a line, which costs
 * more memory than it saves time.
 * After: PARSEC; SHERIFF section 6.1 (under 10 interleavings a line). */
#include "workload.h"

enum { PLACES = 1 << 20, STRIDE = IS_FIXED ? LINE / sizeof(uint64_t) : 1 };

static uint64_t *netlist;

/* Takes the element away, leaving 0 in its place. */
static OPAQUE uint64_t take(uint64_t *place) {
    uint64_t element;
    int spins = 0;
    while ((element = __atomic_exchange_n(place, 0, __ATOMIC_ACQUIRE)) == 0) /* touch: take */
        be_patient(&spins);
    return element;
}

static void swap(uint64_t a, uint64_t b) {
    if (a == b) return;
    /* The lower place first, so that two threads can't wait for each other. */
    uint64_t *first = &netlist[(a < b ? a : b) * STRIDE], *second = &netlist[(a < b ? b : a) * STRIDE];
    uint64_t one = take(first), other = take(second);
    __atomic_store_n(second, one, __ATOMIC_RELEASE); /* touch: put */
    __atomic_store_n(first, other, __ATOMIC_RELEASE);
}

static void work(struct part *part) {
    for (long i = part->begin; i < part->end; i++) {
        uint64_t n = scramble((uint64_t)i);
        swap(n % PLACES, (n >> 32) % PLACES);
    }
}

int main(int argc, char **argv) {
    struct arguments a = read_arguments(argc, argv);
    netlist = aligned_alloc(LINE, (size_t)PLACES * STRIDE * sizeof *netlist); /* alloc: netlist */
    for (uint64_t i = 0; i < PLACES; i++) netlist[i * STRIDE] = i + 1;
    run_threads(a, work);
    uint64_t sum = 0;
    for (uint64_t i = 0; i < PLACES; i++) sum += scramble(netlist[i * STRIDE]);
    print_checksum(sum + (uint64_t)a.size);
    free(netlist);
    return 0;
}
