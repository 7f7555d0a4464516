/* Fibers in threads: their stacks lie between other data of the heap, and each thread switches
 * between them all the time. Says whether each fiber found on its stack what it had written, and
 * the sum of their counts. With "asm" threads switch stacks without the C library, and each has
 * an alternate signal stack. */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

enum { THREADS = 4, FIBERS = 10, STACK = 32 << 10, WORDS = 64 };

struct fiber {
    ucontext_t context;
    ucontext_t *home;
    void *sp, **home_sp;
    long *counter;
    long rounds, wrong;
    int over;
    char *stack;
};

static long rounds = 4000;
static int by_hand;

/* Saves the registers that calls preserve, and continues on another stack. */
void change(void **from, void *to);
__asm__(".globl change\nchange:\n"
        "push %rbp\npush %rbx\npush %r12\npush %r13\npush %r14\npush %r15\n"
        "mov %rsp, (%rdi)\nmov %rsi, %rsp\n"
        "pop %r15\npop %r14\npop %r13\npop %r12\npop %rbx\npop %rbp\nret\n"
        "first:\nmov %rbx, %rdi\ncall live_by_hand\nud2\n");
extern char first[];

static void leave(struct fiber *fiber) {
    if (by_hand) change(&fiber->sp, *fiber->home_sp);
    else swapcontext(&fiber->context, fiber->home);
}

static void live(struct fiber *fiber) {
    volatile long own[WORDS];
    for (int i = 0; i < WORDS; i++) own[i] = i;
    for (long n = 0; n < fiber->rounds; n++) {
        own[n % WORDS] += n;
        (*fiber->counter)++;
        leave(fiber);
    }
    long sum = 0, wanted = WORDS * (WORDS - 1) / 2 + fiber->rounds * (fiber->rounds - 1) / 2;
    for (int i = 0; i < WORDS; i++) sum += own[i];
    fiber->wrong = sum != wanted;
    fiber->over = 1;
}

void live_by_hand(struct fiber *fiber) {
    live(fiber);
    leave(fiber);
}

static void begin(unsigned low, unsigned high) {
    live((struct fiber *)((unsigned long)high << 32 | low));
}

static void make(struct fiber *fiber, ucontext_t *home, void **home_sp, long *counter) {
    memset(fiber, 0, sizeof *fiber);
    fiber->home = home;
    fiber->home_sp = home_sp;
    fiber->counter = counter;
    fiber->rounds = rounds;
    fiber->stack = malloc(STACK);
    memset(fiber->stack, 0, STACK);
    if (by_hand) {
        void **top = (void **)((unsigned long)(fiber->stack + STACK) & -16UL) - 1;
        *--top = first;
        *--top = 0;
        *--top = fiber;
        for (int i = 0; i < 4; i++) *--top = 0;
        fiber->sp = top;
        return;
    }
    getcontext(&fiber->context);
    fiber->context.uc_stack.ss_sp = fiber->stack;
    fiber->context.uc_stack.ss_size = STACK;
    fiber->context.uc_link = home;
    unsigned long at = (unsigned long)fiber;
    makecontext(&fiber->context, (void (*)(void))begin, 2, (unsigned)at, (unsigned)(at >> 32));
}

static void *work(void *argument) {
    long *wrong = argument;
    stack_t alternate = {.ss_sp = malloc(64 << 10), .ss_size = 64 << 10};
    if (by_hand) sigaltstack(&alternate, NULL);
    ucontext_t home;
    void *home_sp = NULL;
    struct fiber *fibers = malloc(FIBERS * sizeof *fibers);
    long *counters = calloc(FIBERS, sizeof *counters);
    for (int i = 0; i < FIBERS; i++) make(&fibers[i], &home, &home_sp, &counters[i]);
    for (int left = FIBERS; left;)
        for (int i = 0; i < FIBERS; i++) {
            if (fibers[i].over) continue;
            if (by_hand) change(&home_sp, fibers[i].sp);
            else swapcontext(&home, &fibers[i].context);
            left -= fibers[i].over;
        }
    for (int i = 0; i < FIBERS; i++) *wrong += fibers[i].wrong + (counters[i] != rounds);
    return NULL;
}

int main(int count, char **arguments) {
    if (count > 1) rounds = atol(arguments[1]);
    by_hand = count > 2;
    pthread_t threads[THREADS];
    long wrong[THREADS] = {0}, all = 0;
    for (int i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, work, &wrong[i]);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < THREADS; i++) all += wrong[i];
    printf("wrong %ld\n", all);
    return all != 0;
}
