/* Two threads that use the elements of a table in turn. In each round they call a function that in one
 * of 100 rounds saves and restores all registers which functions must keep, and else none of them:
 * `ways ROUNDS`. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

struct cell {
    long visits, sum;
    long rest[5];
};

static struct cell table[16] __attribute__((aligned(4096)));
static unsigned long rounds;

long visit(unsigned long);
__asm__(
    ".text\n.type visit, @function\nvisit: .cfi_startproc\n"
    "  test %rdi, %rdi\n  je 1f\n  xor %eax, %eax\n  ret\n"
    "1: push %rbx\n  push %rbp\n  push %r12\n  push %r13\n  push %r14\n  push %r15\n"
    "  lea 3(%rdi), %rbx\n  mov %rbx, %rbp\n  mov %rbp, %r12\n  mov %r12, %r13\n"
    "  mov %r13, %r14\n  mov %r14, %r15\n  mov %r15, %rax\n"
    "  pop %r15\n  pop %r14\n  pop %r13\n  pop %r12\n  pop %rbp\n  pop %rbx\n  ret\n"
    ".cfi_endproc\n.size visit, . - visit\n");

static void *work(void *argument) {
    unsigned long id = (unsigned long)argument, own = 0;
    for (unsigned long i = 0; i < rounds; i++) {
        struct cell *cell = &table[i % 8 * 2 + id];
        own = own * 31 + (unsigned long)++cell->visits;
        cell->sum += visit(i % 100);
        own += (unsigned long)cell->sum;
    }
    return (void *)own;
}

int main(int argc, char **argv) {
    pthread_t threads[2];
    rounds = argc > 1 ? strtoul(argv[1], NULL, 10) : 1000000;
    for (unsigned long i = 0; i < 2; i++)
        pthread_create(&threads[i], NULL, work, (void *)i);
    void *own[2];
    for (int i = 0; i < 2; i++) pthread_join(threads[i], &own[i]);
    printf("%lx\n", (unsigned long)own[0] + 3 * (unsigned long)own[1]);
    return 0;
}
