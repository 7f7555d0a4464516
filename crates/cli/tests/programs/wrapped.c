/* Blocks of 16 bytes that `first` and `second` allocate through two wrappers: does a
 * line hold two of them? `where` prints three return addresses in the file: of the
 * call of `malloc`, of the inner wrapper's, and of the outer one's in `first`. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Written out so that the return addresses of the calls have names. The inner
 * wrapper uses the frame pointer for something else; the outer one has a stack frame
 * of its own. */
__asm__(".text\n"
        "inner: .cfi_startproc\n"
        "push %rbp\n"
        ".cfi_adjust_cfa_offset 8\n"
        ".cfi_offset %rbp, -16\n"
        "sub $16, %rsp\n"
        ".cfi_adjust_cfa_offset 16\n"
        "xor %ebp, %ebp\n"
        "call malloc@plt\n"
        ".globl after_malloc\n"
        "after_malloc: add $16, %rsp\n"
        ".cfi_adjust_cfa_offset -16\n"
        "pop %rbp\n"
        ".cfi_adjust_cfa_offset -8\n"
        "ret\n"
        ".cfi_endproc\n"
        "outer: .cfi_startproc\n"
        "push %rbp\n"
        ".cfi_adjust_cfa_offset 8\n"
        ".cfi_offset %rbp, -16\n"
        "mov %rsp, %rbp\n"
        ".cfi_def_cfa_register %rbp\n"
        "sub $80, %rsp\n"
        "call inner\n"
        ".globl after_inner\n"
        "after_inner: leave\n"
        ".cfi_def_cfa %rsp, 8\n"
        "ret\n"
        ".cfi_endproc\n"
        "first: sub $8, %rsp\n"
        "call outer\n"
        ".globl after_outer\n"
        "after_outer: add $8, %rsp\n"
        "ret\n"
        "second: sub $8, %rsp\n"
        "call outer\n"
        "add $8, %rsp\n"
        "ret\n");
void *first(size_t size) __asm__("first");
void *second(size_t size) __asm__("second");
extern char after_malloc[], after_inner[], after_outer[], __executable_start[];

/* Neighbours in any allocator that lays blocks of a size side by side: of three
 * in a row two share a line, or all are apart. */
static const char *lie(void *ask(size_t)) {
    uintptr_t a = (uintptr_t)ask(16), b = (uintptr_t)ask(16), c = (uintptr_t)ask(16);
    return a / 64 == b / 64 || b / 64 == c / 64 ? "one line" : "apart";
}

int main(int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], "where") == 0) {
        const char *all[] = {after_malloc, after_inner, after_outer};
        for (int i = 0; i < 3; i++) printf("0x%lx\n", (unsigned long)(all[i] - __executable_start));
        return 0;
    }
    printf("first %s, ", lie(first));
    printf("second %s\n", lie(second));
    return 0;
}
