/* A library that makes system calls itself, as OpenMP's runtime does: each function has around its
 * call what compilers put there, and a hook has to replace. Results are the kernel's. */
#include <stddef.h>

#define BODY(NUMBER, BEHIND)                                                                       \
    long result;                                                                                   \
    register long r10 __asm__("r10") = d;                                                          \
    __asm__ volatile("syscall\n" BEHIND                                                            \
                     : "=a"(result)                                                                \
                     : "a"((long)(NUMBER)), "D"(a), "S"(b), "d"(c), "r"(r10)                       \
                     : "rcx", "r11", "memory", "cc");                                              \
    return result

/* A comparison and a branch follow the call; its number is in a register since before the loop. */
long own_again(long a, long b, long c, long d) {
    long result;
    register int number __asm__("r9") = 202;
    register long r10 __asm__("r10") = d;
    do {
        __asm__ volatile("movl %%r9d, %%eax\n"
                         "syscall"
                         : "=a"(result)
                         : "D"(a), "S"(b), "d"(c), "r"(r10), "r"(number)
                         : "rcx", "r11", "memory");
    } while (result == -4);
    return result;
}

/* The number is a constant, and only the return follows the call. */
long own_futex(long a, long b, long c, long d) { BODY(202, ""); }

static long last;
long own_clock(long a, long b, long c, long d) {
    long result;
    register long r10 __asm__("r10") = d;
    /* The instructions beside the call have operands relative to RIP. */
    __asm__ volatile("movl $228, %%eax\n"
                     "movq last_clock(%%rip), %%rcx\n"
                     "syscall\n"
                     "movq %%rax, last_clock(%%rip)\n"
                     ".pushsection .data\n"
                     "last_clock: .quad 0\n"
                     ".popsection"
                     : "=a"(result)
                     : "D"(a), "S"(b), "d"(c), "r"(r10)
                     : "rcx", "r11", "memory");
    last = result;
    return last;
}

/* A jump follows the call. */
long own_write(long a, long b, long c, long d) {
    BODY(1, "jmp 1f\n"
            ".p2align 4\n"
            "1:");
}

long own_read(long a, long b, long c, long d) { BODY(0, "test %%rax, %%rax\n"); }

long own_pipe(long a, long b, long c, long d) {
    BODY(293, "cmp $-38, %%rax\n"
              "jne 1f\n"
              "ud2\n"
              "1:");
}

long own_map(long a, long b, long c, long d) {
    register long r8 __asm__("r8") = -1;
    register long r9 __asm__("r9") = 0;
    register long r10 __asm__("r10") = d;
    long result;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(9L), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return result;
}

long own_unmap(long a, long b, long c, long d) { BODY(11, ""); }

long own_thread(void) {
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "a"(186L) : "rcx", "r11");
    return result;
}

#ifdef BETWEEN
/* The instructions before and after the call are branch targets, so a hook can replace neither. */
long own_between(long a, long b, long c, long d) {
    long result;
    register long r10 __asm__("r10") = d;
    __asm__ volatile("movl $228, %%eax\n"
                     "test %%rdi, %%rdi\n"
                     "je 2f\n"
                     "1: syscall\n"
                     "2: cmp $-4, %%rax\n"
                     "je 1b"
                     : "=a"(result)
                     : "D"(a), "S"(b), "d"(c), "r"(r10)
                     : "rcx", "r11", "memory", "cc");
    return result;
}
#endif
