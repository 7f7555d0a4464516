/* Allocations through functions that hand raw memory on, and through factories. Each block is told
 * with the function that decides what it is for. */
#include "recorder.h"

struct slot { long key, value; };

NOINLINE static void *xmalloc(size_t size)
{
    void *block = malloc(size);
    if (!block)
        abort();
    return block;
}
NOINLINE static char *outer_xmalloc(size_t size)
{
    char *block = xmalloc(size + 8);
    block[0] = 1;
    return block + 8;
}
static inline __attribute__((always_inline)) void *inlined_xmalloc(size_t size)
{
    void *block = malloc(size);
    if (!block)
        abort();
    return block;
}
/* Optimised, a jump to malloc. */
NOINLINE static void *tail(size_t size) { return malloc(size); }

NOINLINE static struct slot *factory(void)
{
    struct slot *made = malloc(sizeof *made);
    if (made)
        made->key = 1;
    return made;
}
/* Keeps what it allocates. */
static void *kept;
NOINLINE static void *keeps(size_t size)
{
    kept = malloc(size);
    return stack;
}
NOINLINE static void through_one(int n)
{
    struct slot *got = xmalloc(n * sizeof *got);
    tell("through_one");
    KEEP(got);
}
NOINLINE static void through_two(int n)
{
    struct slot *got = (struct slot *)outer_xmalloc(n * sizeof *got);
    tell("through_two");
    KEEP(got);
}
NOINLINE static void through_inlined(int n)
{
    struct slot *got = inlined_xmalloc(n * sizeof *got);
    tell("through_inlined");
    KEEP(got);
}
NOINLINE static void through_tail(int n)
{
    struct slot *got = tail(n * sizeof *got);
    tell("through_tail");
    KEEP(got);
}
NOINLINE static void from_factory(void)
{
    struct slot *got = factory();
    tell("factory");
    KEEP(got);
}
NOINLINE static void from_keeper(int n)
{
    void *got = keeps(n);
    tell("keeps");
    KEEP(got);
}

int main(int argc, char **argv)
{
    (void)argv;
    through_one(argc);
    through_two(argc);
    through_inlined(argc);
    through_tail(argc);
    from_factory();
    from_keeper(argc);
    mappings();
    return 0;
}
