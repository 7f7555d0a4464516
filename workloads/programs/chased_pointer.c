/* One thread follows a pointer, as through a list, again and again; beside the pointer
 * another one counts. The load that waits for the line overwrites the register that
 * held its address, so a sample behind it does not show where it read. */
#include "workload.h"

struct node {
    OWN_LINE struct node *next; /* followed by all but thread 0 */
    OWN_LINE uint64_t visits;   /* updated by thread 0 */
};

static struct node *ring;
static uint64_t steps[MAX_THREADS][LINE / sizeof(uint64_t)] ON_LINE;

static OPAQUE uint64_t follow(struct node *at, long rounds) {
    uint64_t sum = 0;
    for (long i = 0; i < rounds; i++) {
        at = *(struct node *volatile *)&at->next; /* touch: next */
        __asm__ volatile("" : "+r"(at));
        sum += at != NULL;
    }
    return sum;
}

static OPAQUE void count(struct node *at, long rounds) {
    for (long i = 0; i < rounds; i++)
        __atomic_fetch_add(&at->visits, 1, __ATOMIC_RELAXED); /* touch: visits */
}

static void work(struct part *part) {
    if (part->id == 0) {
        count(ring, part->size);
    } else {
        divide_among_others(part);
    }
    if (part->id > 0 || part->threads == 1)
        steps[part->id][0] = follow(ring, 2 * (part->end - part->begin));
}

int main(int argc, char **argv) {
    struct arguments a = read_arguments(argc, argv);
    ring = aligned_alloc(LINE, (sizeof *ring + LINE - 1) / LINE * LINE); /* alloc: ring */
    if (ring == NULL) return 3;
    ring->next = ring;
    ring->visits = 0;
    check_layout(on_one_line(&ring->next, &ring->visits) != IS_FIXED, "ring");
    run_threads(a, work);
    uint64_t sum = ring->visits;
    for (long i = 0; i < a.threads; i++) sum += steps[i][0];
    print_checksum(sum);
    free(ring);
    return 0;
}
