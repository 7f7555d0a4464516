/* Two threads of a 32-bit program write neighbouring words. There is no C library, so that it can be
 * built where none for 32 bits is installed. */

enum { EXIT = 1, CLONE = 120, EXIT_GROUP = 252 };
enum { VM = 0x100, FS = 0x200, FILES = 0x400, SIGHAND = 0x800, THREAD = 0x10000, SYSVSEM = 0x40000 };

static struct {
    volatile int first, second;
} shared __attribute__((aligned(64)));

static void *stack[4096] __attribute__((aligned(16)));
static volatile int done;

static void call(long number, long argument) {
    long result;
    __asm__ volatile("int $0x80" : "=a"(result) : "a"(number), "b"(argument) : "memory");
}

static void count(volatile int *word) {
    for (int i = 0; i < 100000000; i++)
        *word = *word + (i & 7);
}

__attribute__((used)) static void second(void) {
    count(&shared.second);
    done = 1;
    call(EXIT, 0);
}

void _start(void) {
    long result;
    void **top = stack + 4088;
    *top = (void *)second;
    /* The child returns from the call on its own stack, where its function waits. */
    __asm__ volatile("int $0x80\n\t"
                     "test %%eax, %%eax\n\t"
                     "jnz 1f\n\t"
                     "pop %%eax\n\t"
                     "call *%%eax\n"
                     "1:"
                     : "=a"(result)
                     : "a"(CLONE), "b"(VM | FS | FILES | SIGHAND | THREAD | SYSVSEM), "c"(top), "d"(0), "S"(0),
                       "D"(0)
                     : "memory");
    count(&shared.first);
    while (!done)
        ;
    call(EXIT_GROUP, 3);
}
