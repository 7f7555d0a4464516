/* Five ways to write false sharing, by VARIANT:
 *   1  each thread increments a word of its own
 *   2  the same through a local variable
 *   3  each thread increments one byte of its word
 *   4  each thread reads and increments its word in turn
 *   5  of each pair of threads one reads and one increments the same word, which
 *      lies on a line with the other pairs' words
 * After: the thesis on Plastic's detector, Listing A.1. */
#include "workload.h"

enum { STRIDE = IS_FIXED ? LINE / sizeof(uint64_t) : 1 };

static volatile uint64_t *words;

static void work(struct part *part) {
    volatile uint64_t *mine = &words[(VARIANT == 5 ? part->id / 2 : part->id) * STRIDE];
    int is_reader = VARIANT == 5 && part->id % 2 == 1;
    volatile uint64_t local = 0;
    for (long i = part->begin; i < part->end; i++) {
#if VARIANT == 1
        ++*mine; /* touch: v1 */
#elif VARIANT == 2
        local = *mine; /* touch: v2 */
        local++;
        *mine = local;
#elif VARIANT == 3
        volatile unsigned char *byte = (volatile unsigned char *)mine + part->id % 8;
        ++*byte; /* touch: v3 */
#elif VARIANT == 4
        if (i & 1)
            local = *mine;
        else
            ++*mine; /* touch: v4 */
#elif VARIANT == 5
        if (is_reader)
            local = *mine;
        else
            ++*mine; /* touch: v5 */
#endif
    }
    (void)local;
    (void)is_reader;
}

int main(int argc, char **argv) {
    struct arguments a = read_arguments(argc, argv);
    size_t bytes = (size_t)a.threads * STRIDE * sizeof *words;
    lead_heap_to(bytes, IS_FIXED ? 0 : 16);
    uint64_t *array = malloc(bytes); /* alloc: words */
    memset(array, 0, bytes);
    words = array;
    if (a.threads > 1) check_layout(on_one_line(array, array + STRIDE) != IS_FIXED, "words");
    run_threads(a, work);
    uint64_t sum = 0;
    for (long i = 0; i < a.threads; i++) {
        uint64_t word = array[i * STRIDE];
        sum += VARIANT == 3 ? word >> (i % 8 * 8) : word;
    }
    print_checksum(VARIANT == 3 ? sum & 0xff : sum);
    free(array);
    return 0;
}
