/* Blocks that are held by variables, fields and elements, directly and through
 * functions that return them. */
#include "recorder.h"

struct slot { long key, value; };
struct pool { struct slot *slots; void *data; struct pool *next; };
struct slot *table;
struct slot *tables[8];
struct pool *head;

NOINLINE static void local(int n)
{
    struct slot *args = malloc(n * sizeof *args);
    tell("args");
    struct slot *a = args;
    a->key++;
    KEEP(args);
}
NOINLINE static void global(int n)
{
    table = malloc(n * sizeof *table);
    tell("table");
    KEEP(table);
}
NOINLINE static void field(struct pool *p, int n)
{
    p->slots = malloc(n * sizeof *p->slots);
    tell("p->slots");
}
NOINLINE static void untyped_field(struct pool *p, int n)
{
    p->data = malloc(n);
    tell("p->data");
}
NOINLINE static void element(int i)
{
    tables[i] = malloc(sizeof **tables);
    tell("tables[..]");
}
NOINLINE static struct slot *make(int n)
{
    struct slot *made = malloc(n * sizeof *made);
    if (!made)
        return NULL;
    made->key = n;
    return made;
}
NOINLINE static void from_factory(int n)
{
    struct slot *got = make(n);
    tell("got");
    KEEP(got);
}
NOINLINE static void *xmalloc(size_t size)
{
    void *block = malloc(size);
    if (!block)
        abort();
    return block;
}
NOINLINE static void from_wrapper(int n)
{
    struct slot *wrapped = xmalloc(n * sizeof *wrapped);
    tell("wrapped");
    KEEP(wrapped);
}
NOINLINE static void push(void)
{
    struct pool *fresh = malloc(sizeof *fresh);
    fresh->next = head;
    head = fresh;
    tell("fresh");
    KEEP(head);
}
NOINLINE static void consume(void *block) { KEEP(block); }
NOINLINE static void nobody(int n)
{
    consume(malloc(n));
    tell("-");
}

int main(int argc, char **argv)
{
    (void)argv;
    static struct pool pool;
    struct pool *volatile hidden = &pool;
    local(argc);
    global(argc);
    field(hidden, argc);
    untyped_field(hidden, argc);
    element(argc);
    from_factory(argc);
    from_wrapper(argc);
    push();
    nobody(argc);
    mappings();
    return 0;
}
