/* Allocates with every function there is and prints its blocks: one line a block,
 * `live|freed ADDRESS SIZE THREAD FUNCTION,CALLER,...`, then `ready`; ends when
 * its input does. The test compares this list with what the segment says. */
#define _GNU_SOURCE
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#define SITE __attribute__((noinline, noclone))

static void say(const char *state, void *block, size_t size, int thread, const char *stack) {
    printf("%s %p %zu %d %s\n", state, block, size, thread, stack);
}

SITE void *small_block(size_t n) { void *p = malloc(n); memset(p, 1, n); return p; }
SITE void *zeroed_block(size_t n) {
    char *p = calloc(n / 8 + 1, 8);
    for (size_t i = 0; i < n; i++) if (p[i]) abort();
    return p;
}
SITE void *caller_one(size_t n) { void *p = small_block(n); __asm__ volatile("" ::: "memory"); return p; }
SITE void *caller_two(size_t n) { void *p = small_block(n); __asm__ volatile("" ::: "memory"); return p; }
SITE void *caller_with_array(size_t n) {
    volatile char space[n + 100]; /* a frame whose size is not known before */
    space[n] = 1;
    void *p = small_block(n);
    space[0] = space[n];
    return p;
}
SITE void *deep(int depth, size_t n) {
    void *p = depth ? deep(depth - 1, n) : small_block(n);
    __asm__ volatile("" ::: "memory");
    return p;
}
SITE void *grown_block(void *p, size_t n) { p = realloc(p, n); __asm__ volatile("" ::: "memory"); return p; }
SITE void *array_block(size_t n) { void *p = reallocarray(NULL, n, 10); __asm__ volatile("" ::: "memory"); return p; }
SITE void *aligned_block(size_t a, size_t n) {
    void *p = NULL;
    if (posix_memalign(&p, a, n) || (size_t)p % a) abort();
    return p;
}
SITE void *other_aligned_block(size_t a, size_t n) {
    void *p = aligned_alloc(a, n);
    if ((size_t)p % a) abort();
    __asm__ volatile("" ::: "memory");
    return p;
}
SITE void *memaligned_block(size_t a, size_t n) { void *p = memalign(a, n); __asm__ volatile("" ::: "memory"); return p; }
SITE void *page_block(size_t n) { void *p = valloc(n); __asm__ volatile("" ::: "memory"); return p; }
SITE void *duplicate(const char *s) { void *p = strdup(s); __asm__ volatile("" ::: "memory"); return p; }

SITE void ways(void) {
    for (int i = 0; i < 3; i++) {
        say("live", caller_one(40), 40, getpid(), "small_block,caller_one,ways,main");
        say("live", caller_two(40), 40, getpid(), "small_block,caller_two,ways,main");
    }
    say("live", caller_with_array(500), 500, getpid(), "small_block,caller_with_array,ways,main");
    say("live", caller_with_array(90), 90, getpid(), "small_block,caller_with_array,ways,main");
    say("live", deep(3, 64), 64, getpid(), "small_block,deep,deep,deep,deep,ways,main");
    say("live", deep(25, 72), 72, getpid(),
        "small_block,deep,deep,deep,deep,deep,deep,deep,deep,deep,deep,deep,deep,deep,deep,deep,"
        "deep,deep,deep,deep,deep,deep,deep,deep,deep,deep,deep,ways,main");
    say("live", zeroed_block(100), 104, getpid(), "zeroed_block,ways,main");
    say("live", array_block(77), 770, getpid(), "array_block,ways,main");
    say("live", aligned_block(4096, 100), 100, getpid(), "aligned_block,ways,main");
    say("live", other_aligned_block(64, 128), 128, getpid(), "other_aligned_block,ways,main");
    say("live", memaligned_block(1 << 16, 1000), 1000, getpid(), "memaligned_block,ways,main");
    say("live", page_block(5000), 5000, getpid(), "page_block,ways,main");
    say("live", caller_one(1 << 20), 1 << 20, getpid(), "small_block,caller_one,ways,main");
    say("live", caller_one(300 << 20), 300 << 20, getpid(), "small_block,caller_one,ways,main");
    say("live", caller_one(32767), 32767, getpid(), "small_block,caller_one,ways,main");
    say("live", caller_one(32768), 32768, getpid(), "small_block,caller_one,ways,main");
    void *p = caller_one(56);
    free(p);
    say("freed", p, 56, getpid(), "small_block,caller_one,ways,main");
    p = caller_one(3 << 20);
    free(p);
    say("freed", p, 3 << 20, getpid(), "small_block,caller_one,ways,main");
    p = caller_one(88);
    free(p);
    void *q = caller_two(88);
    if (p != q) abort(); /* the address is used again at once */
    say("live", q, 88, getpid(), "small_block,caller_two,ways,main");
    p = caller_one(200);
    memset(p, 7, 200);
    p = grown_block(p, 208);
    p = grown_block(p, 9000);
    if (((char *)p)[199] != 7) abort();
    p = grown_block(p, 3000000);
    p = grown_block(p, 50);
    if (((char *)p)[49] != 7) abort();
    say("live", p, 50, getpid(), "grown_block,ways,main");
    say("live", grown_block(caller_one(200), 9000), 9000, getpid(), "grown_block,ways,main");
    p = caller_one(240);
    if (grown_block(p, (size_t)1 << 62)) abort(); /* fails, the block lives on */
    say("live", p, 240, getpid(), "small_block,caller_one,ways,main");
    say("live", duplicate("twelve bytes"), 13, getpid(), "*,duplicate,ways,main");
}

SITE void many(void) {
    enum { COUNT = 100000 };
    static void *blocks[COUNT];
    static size_t sizes[COUNT];
    static char site[COUNT];
    unsigned seed = 1;
    for (int round = 0; round < 3; round++)
        for (int i = 0; i < COUNT; i++) {
            seed = seed * 1664525 + 1013904223;
            if (round && seed >> 31) continue;
            if (blocks[i] && seed >> 30 & 1) {
                free(blocks[i]);
                blocks[i] = NULL;
            }
            size_t n = 1 + (seed >> 12) % (i % 1000 == 0 ? 100000 : i % 10 == 0 ? 3000 : 120);
            site[i] = blocks[i] ? 'g' : i % 3 ? '1' : '2';
            blocks[i] = blocks[i] ? grown_block(blocks[i], n) : i % 3 ? caller_one(n) : caller_two(n);
            sizes[i] = n;
        }
    for (int i = 0; i < COUNT; i++)
        say("live", blocks[i], sizes[i], getpid(),
            site[i] == 'g' ? "grown_block,many,main"
            : site[i] == '1' ? "small_block,caller_one,many,main" : "small_block,caller_two,many,main");
}

static void *shared[2];
static pthread_barrier_t barrier;
SITE void *worker(void *unused) {
    (void)unused;
    shared[0] = caller_one(120);
    say("live", shared[0], 120, gettid(), "small_block,caller_one,worker");
    shared[1] = caller_two(136);
    pthread_barrier_wait(&barrier); /* main frees shared[1] */
    pthread_barrier_wait(&barrier);
    return (void *)1234;
}
SITE void threads(void) {
    pthread_t t;
    void *result;
    pthread_barrier_init(&barrier, NULL, 2);
    pthread_create(&t, NULL, worker, NULL);
    pthread_barrier_wait(&barrier);
    free(shared[1]);
    say("freed", shared[1], 136, 0, "small_block,caller_two,worker");
    pthread_barrier_wait(&barrier);
    pthread_join(t, &result);
    if (result != (void *)1234) abort();
}

int main(int argc, char **argv) {
    static char buffer[1 << 16];
    setvbuf(stdout, buffer, _IOFBF, sizeof buffer); /* no block of stdio's own */
    if (argc > 1 && !strcmp(argv[1], "many")) many();
    else if (argc > 1 && !strcmp(argv[1], "threads")) threads();
    else ways();
    printf("ready\n");
    fflush(stdout);
    while (getchar_unlocked() != EOF) {}
    return 0;
}
