/* Prints the kernel's mappings, and for functions that wait in a call their
 * registers (return address, rsp, rbp, CFA or 0), each followed by the variables
 * in their stack frames. C and C++. */
#include <stdio.h>
#ifdef __cplusplus
extern "C"
#endif
void here(void **registers);
__asm__(".text\n.globl here\nhere:\n"
        "mov (%rsp), %rax\nmov %rax, (%rdi)\n"
        "lea 8(%rsp), %rax\nmov %rax, 8(%rdi)\n"
        "mov %rbp, 16(%rdi)\nret\n");
#define NOINLINE __attribute__((noinline))
#define CFA __builtin_dwarf_cfa()
static void *registers[3];
static void frame(const char *function, void *cfa) {
    printf("frame %s %p %p %p %p\n", function, registers[0], registers[1], registers[2], cfa);
}
static void *volatile seen;
static void at(const char *what, void *address) { printf("at %s %p\n", what, address); }

struct pair { long hits; int bins[4]; };

NOINLINE static void plain(int n) {
    struct pair pairs[3];
    char flags[5];
    seen = pairs;
    seen = flags;
    if (n > 0) {
        long inner[2];
        here(registers);
        frame(__func__, CFA);
        at("inner[1]", &inner[1]);
        at("inner[0]", &inner[0]);
    }
    at("pairs[0].hits", &pairs[0]);
    at("pairs[2].bins[3]", &pairs[2].bins[3]);
    at("flags[4]", &flags[4]);
}

/* Optimisers let `early` and `late` share memory; only one is alive. */
NOINLINE static void sharing(int n) {
    long late[3];
    if (n > 0) {
        struct pair early[1];
        here(registers);
        frame(__func__, CFA);
        at("early[0].bins[1]", &early[0].bins[1]);
    }
    seen = late;
}

/* A variable with a greater alignment than the stack is addressed by rsp only. */
NOINLINE static void realigned(void) {
    struct pair lines[4] __attribute__((aligned(128)));
    here(registers);
    frame(__func__, 0);
    at("lines[0].hits", &lines[0]);
    at("lines[3].bins[1]", &lines[3].bins[1]);
}

/* A variable beside an array of unknown length is addressed by rbp only. */
NOINLINE static void moving(int n) {
    long fixed[3];
    seen = fixed;
    volatile char room[n];
    room[0] = 1;
    here(registers);
    frame(__func__, CFA);
    at("fixed[2]", &fixed[2]);
}

static inline __attribute__((always_inline)) void inlined(struct pair *argument) {
    long sums[2];
    here(registers);
    frame("around", CFA);
    at("sums[1]", &sums[1]);
    at("kept[1].hits", &argument[1]);
}
NOINLINE static void around(void) {
    struct pair kept[2];
    inlined(kept);
    at("kept[0].bins[0]", &kept[0].bins[0]);
}

int main(int argc, char **argv) {
    (void)argv;
    plain(argc);
    realigned();
    sharing(argc);
    moving(argc + 20);
    around();
    char line[512];
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps && fgets(line, sizeof line, maps)) fputs(line, stdout);
    return 0;
}
