/* Stacks that are switched in user space, and jumps within a thread. */
#include "check.h"
#include <setjmp.h>
#include <ucontext.h>

struct walk {
    ucontext_t back, inside;
    char stack[1 << 16];
    long steps, own;
};

static void walk(unsigned low, unsigned high) {
    struct walk *w = (struct walk *)((uintptr_t)low | (uintptr_t)high << 32);
    for (;;) {
        heat(w->own, 50);
        w->steps++;
        CHECK(swapcontext(&w->inside, &w->back) == 0);
    }
}

__attribute__((noinline)) static void deeper(jmp_buf back, int depth) {
    if (depth == 0) longjmp(back, 7);
    deeper(back, depth - 1);
}

static void comes_back(long value) {
    jmp_buf back;
    volatile long kept = value;
    if (setjmp(back) == 0) deeper(back, 20);
    CHECK(kept == value);
}

static void *switch_stacks(void *number) {
    struct walk *w = calloc(2, sizeof *w);
    for (int k = 0; k < 2; k++) {
        CHECK(getcontext(&w[k].inside) == 0);
        w[k].own = (long)number;
        w[k].inside.uc_stack.ss_sp = w[k].stack;
        w[k].inside.uc_stack.ss_size = sizeof w[k].stack;
        uintptr_t p = (uintptr_t)&w[k];
        makecontext(&w[k].inside, (void (*)(void))walk, 2, (unsigned)p, (unsigned)(p >> 32));
    }
    for (long i = 0; i < 2000 * scale; i++) {
        CHECK(swapcontext(&w[i % 2].back, &w[i % 2].inside) == 0);
        comes_back(i);
    }
    CHECK(w[0].steps == 1000 * scale && w[1].steps == 1000 * scale);
    free(w);
    return NULL;
}

int main(int argc, char **argv) {
    arguments(argc, argv);
    in_threads(switch_stacks);
    for (long i = 0; i < THREADS; i++) cool(i, 2000 * scale * 50);
    puts("walked");
    return 0;
}
