// Two threads, each with a counter of its own, allocated as the first argument says;
// counters of another function are allocated in the same way. Says of both whether
// they share a line. The second argument is how often to count.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <thread>

struct Counter {
    long count = 0, spare = 0;
};

// Inlined into its callers, as templates and small functions of a library are.
__attribute__((always_inline)) static inline long *make(const char *how) {
    if (strcmp(how, "new") == 0) return &(new Counter)->count;
    return &(new (std::nothrow) Counter)->count;
}

__attribute__((noinline)) static void make_busy(const char *how, long **to) {
    for (int i = 0; i < 3; i++) to[i] = make(how);
}

__attribute__((noinline)) static void make_idle(const char *how, long **to) {
    for (int i = 0; i < 3; i++) to[i] = make(how);
    asm volatile("" ::: "memory"); // keeps compilers from merging the two functions
}

static bool on_one_line(long **blocks, int first) {
    return (uintptr_t)blocks[first] / 64 == (uintptr_t)blocks[first + 1] / 64;
}

static const char *lie(long **blocks) {
    return on_one_line(blocks, 0) || on_one_line(blocks, 1) ? "one line" : "apart";
}

int main(int, char **argv) {
    long *busy[3], *idle[3], rounds = atol(argv[2]);
    make_busy(argv[1], busy);
    make_idle(argv[1], idle);
    int from = on_one_line(busy, 0) ? 0 : 1;
    auto count = [=](volatile long *own) {
        for (long i = 0; i < rounds; i++) (*own)++;
    };
    std::thread one(count, busy[from]), two(count, busy[from + 1]);
    one.join();
    two.join();
    printf("busy %s, idle %s\n", lie(busy), lie(idle));
}
