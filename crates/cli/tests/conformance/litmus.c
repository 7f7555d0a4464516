/* What x86-64 and C11 promise of memory: outcomes that they forbid must not be
 * seen, spins must end, and no atomic update may be lost, also beside plain data
 * on one page. */
#include "check.h"
#include <stdatomic.h>

#define ROUNDS (3000 * scale)
#define RELAXED memory_order_relaxed

/* All on one page, beside plain counters. */
static struct {
    volatile long counters[8];
    _Atomic long x, y, flag, data;
    volatile int plain_flag;
    volatile long plain;
    atomic_long adds, exchanges;
    unsigned char bits;
    _Atomic unsigned sequence;
    long first, second;
    atomic_int wants[2], turn;
    long peterson;
} page __attribute__((aligned(4096)));

static pthread_barrier_t pair;
static long r0, r1, forbidden;
static int which;

static void meet(void) { pthread_barrier_wait(&pair); }

/* Message passing, by plain moves. */
static void *message(void *number) {
    for (long i = 1; i <= ROUNDS; i++) {
        if ((long)number == 0) {
            atomic_store_explicit(&page.data, i, RELAXED);
            atomic_store_explicit(&page.flag, i, memory_order_release);
            page.counters[0]++;
            while (atomic_load_explicit(&page.y, memory_order_acquire) != i) {}
        } else {
            while (atomic_load_explicit(&page.flag, memory_order_acquire) != i) {}
            if (atomic_load_explicit(&page.data, RELAXED) != i) forbidden++;
            page.counters[1]++;
            atomic_store_explicit(&page.y, i, memory_order_release);
        }
    }
    return NULL;
}

/* Store buffering with fences: not both threads may read the old value. */
static void *buffering(void *number) {
    for (long i = 1; i <= ROUNDS / 4; i++) {
        meet();
        if ((long)number == 0) {
            atomic_store_explicit(&page.x, i, RELAXED);
            atomic_thread_fence(memory_order_seq_cst);
            r0 = atomic_load_explicit(&page.y, RELAXED);
        } else {
            atomic_store_explicit(&page.y, i, RELAXED);
            atomic_thread_fence(memory_order_seq_cst);
            r1 = atomic_load_explicit(&page.x, RELAXED);
        }
        page.counters[(long)number]++;
        meet();
        if ((long)number == 0 && r0 != i && r1 != i) forbidden++;
    }
    return NULL;
}

/* A spin on a plain volatile flag ends. */
static void *plain_flag(void *number) {
    for (int i = 1; i <= ROUNDS / 10; i++) {
        if ((long)number == 0) {
            page.plain = i;
            page.plain_flag = 2 * i - 1;
            while (page.plain_flag != 2 * i) {}
        } else {
            while (page.plain_flag != 2 * i - 1) {}
            if (page.plain != i) forbidden++;
            page.counters[1]++;
            page.plain_flag = 2 * i;
        }
    }
    return NULL;
}

static void *sequence_lock(void *number) {
    for (long i = 0; i < ROUNDS * 10; i++) {
        if ((long)number == 0) {
            atomic_fetch_add(&page.sequence, 1);
            *(volatile long *)&page.first = i;
            *(volatile long *)&page.second = i;
            atomic_fetch_add(&page.sequence, 1);
        } else {
            unsigned begin = atomic_load_explicit(&page.sequence, memory_order_acquire);
            long a = *(volatile long *)&page.first, b = *(volatile long *)&page.second;
            atomic_thread_fence(memory_order_acquire);
            unsigned end = atomic_load_explicit(&page.sequence, RELAXED);
            if (begin == end && begin % 2 == 0 && a != b) forbidden++;
        }
        page.counters[(long)number]++;
    }
    return NULL;
}

static void *peterson(void *number) {
    int own = (int)(long)number;
    for (long i = 0; i < ROUNDS; i++) {
        atomic_store(&page.wants[own], 1);
        atomic_store(&page.turn, !own);
        while (atomic_load(&page.wants[!own]) && atomic_load(&page.turn) == !own) {}
        page.peterson++;
        atomic_store_explicit(&page.wants[own], 0, memory_order_release);
        page.counters[own]++;
    }
    return NULL;
}

/* Every way to update a word atomically. */
static void *updates(void *number) {
    long own = (long)number;
    for (long i = 0; i < ROUNDS * 20; i++) {
        atomic_fetch_add_explicit(&page.adds, 1, RELAXED);
        __asm__ volatile("lock incq %0" : "+m"(page.adds));
        long old = atomic_load_explicit(&page.adds, RELAXED);
        while (!atomic_compare_exchange_weak(&page.adds, &old, old + 1)) {}
        atomic_fetch_add(&page.exchanges, atomic_exchange(&page.exchanges, 0) + 1);
        __sync_fetch_and_or(&page.bits, (unsigned char)(1 << own));
        page.counters[own]++;
    }
    return NULL;
}

/* A stack and a queue without locks. */
struct node {
    struct node *next;
    long value;
};
static _Atomic(struct node *) top;
static struct {
    _Atomic long head;
    volatile long beside[6];
    _Atomic long tail;
    long ring[256];
} queue;
static atomic_long sum;

static void *lock_free(void *number) {
    long own = (long)number, mine = 0;
    struct node *nodes = calloc(ROUNDS, sizeof *nodes);
    for (long i = 0; i < ROUNDS; i++) {
        nodes[i].value = i;
        struct node *old = atomic_load(&top);
        do nodes[i].next = old;
        while (!atomic_compare_exchange_weak(&top, &old, &nodes[i]));
        if (own == 0) {
            while (i - atomic_load_explicit(&queue.tail, memory_order_acquire) >= 256) {}
            queue.ring[i % 256] = i;
            atomic_store_explicit(&queue.head, i + 1, memory_order_release);
        } else {
            while (atomic_load_explicit(&queue.head, memory_order_acquire) <= i) {}
            if (queue.ring[i % 256] != i) forbidden++;
            mine += queue.ring[i % 256];
            atomic_store_explicit(&queue.tail, i + 1, memory_order_release);
        }
        queue.beside[own]++;
    }
    atomic_fetch_add(&sum, mine);
    return NULL;
}

static void both(const char *name, body function) {
    pthread_t thread[2];
    for (long i = 0; i < 2; i++) page.counters[i] = 0;
    page.flag = page.data = page.x = page.y = 0;
    for (long i = 0; i < 2; i++) DO(pthread_create(&thread[i], NULL, function, (void *)i));
    for (long i = 0; i < 2; i++) DO(pthread_join(thread[i], NULL));
    printf("%s: %ld forbidden\n", name, forbidden);
    fflush(stdout);
    which++;
}

int main(int argc, char **argv) {
    arguments(argc, argv);
    DO(pthread_barrier_init(&pair, NULL, 2));
    both("message passing", message);
    both("store buffering", buffering);
    both("plain flag", plain_flag);
    both("sequence lock", sequence_lock);
    CHECK(page.counters[0] == ROUNDS * 10 && page.counters[1] == ROUNDS * 10);
    both("peterson", peterson);
    CHECK(page.peterson == 2 * ROUNDS);
    both("updates", updates);
    CHECK(page.adds == 2 * 3 * ROUNDS * 20 && page.bits == 3 && page.counters[1] == ROUNDS * 20);
    both("lock-free", lock_free);
    long count = 0;
    for (struct node *n = top; n != NULL; n = n->next) count++;
    printf("stack %d, queue %d\n", count == 2 * ROUNDS, sum == ROUNDS * (ROUNDS - 1) / 2);
    return 0;
}
