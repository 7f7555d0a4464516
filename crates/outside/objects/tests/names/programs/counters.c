/* Globals, statics, thread-locals and pointers of every kind for the tests.
   `main` uses all of them so that the linker drops none. */
#include <pthread.h>
#include <stdlib.h>

struct counter {
    long hits;
    int low : 3;
    int high : 5;
    char tag;
    union {
        float f;
        int i;
    } either;
    struct {
        short a, b;
    } inner;
};

struct counter counters[8];
static int matrix[3][4];
static unsigned char bytes[256];
static char longer[65536];
pthread_mutex_t guard;
_Atomic long total;
struct {
    long flag;
    long counter;
} unnamed;
volatile long spun[4];
__thread long mine[4];
static __thread int other;

struct node {
    struct node *next;
    struct counter *owned;
    long values[4];
};

__attribute__((noinline)) int bump(struct counter *c)
{
    static int calls;
    calls++;
    c->inner.b++; /* LINE bump */
    return calls;
}

static inline __attribute__((always_inline)) void inlined(struct counter *c)
{
    c->hits += 3; /* LINE inlined */
}

__attribute__((noinline)) long walk(struct node *n, int i)
{
    long sum = 0;
    while (n) {
        n->owned->hits += 2; /* LINE chain */
        n->values[i] += 1;   /* LINE index */
        sum += n->values[1];
        n = n->next;
    }
    return sum;
}

__attribute__((noinline)) void each(struct counter *c, int n)
{
    for (int i = 0; i < n; i++)
        c[i].either.i += i; /* LINE each */
}

__attribute__((noinline)) void all(int n)
{
    for (int i = 0; i < n; i++)
        counters[i].tag++; /* LINE all */
}

__attribute__((noinline)) void own(void)
{
    mine[2]++; /* LINE own */
    other++;
}

__attribute__((noinline)) void raw(void *p, long n)
{
    ((char *)p)[n] = 1; /* LINE raw */
}

/* An allocation by a function that does not know the type. */
__attribute__((noinline)) void *wrapped(unsigned long size)
{
    void *made = malloc(size);
    if (!made)
        abort();
    return made;
}

struct counter *spare;

__attribute__((noinline)) void reserve(void)
{
    spare = wrapped(2 * sizeof *spare);
}

int main(int argc, char **argv)
{
    struct node *n = calloc(3, sizeof *n);
    if (!n)
        return 1;
    n->owned = &counters[argc];
    long sum = walk(n, argc) + bump(&counters[1]);
    inlined(&counters[argc + 1]);
    each(counters, argc);
    all(argc);
    own();
    reserve();
    raw(argv[0], 0);
    matrix[2][1] = argc;
    bytes[argc] = longer[argc] = 1;
    pthread_mutex_lock(&guard);
    total += sum;
    pthread_mutex_unlock(&guard);
    return matrix[argc % 3][1] > 100 || bytes[argc] == longer[2 * argc];
}
