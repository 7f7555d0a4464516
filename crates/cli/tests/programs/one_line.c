/* Two small blocks: do they lie on one line? `threads`: each is allocated by a
 * thread of its own; `main`: both by the main thread, at one call, whose return
 * address in the file `where` prints. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Written out so that the return address of the call has a name. */
__asm__(".text\n"
        ".type ask, @function\n"
        "ask: sub $8, %rsp\n"
        "call malloc@plt\n"
        ".globl after\n"
        "after: add $8, %rsp\n"
        "ret\n"
        ".size ask, . - ask\n");
void *ask(size_t size) __asm__("ask");
extern char after[], __executable_start[];

static void *block[2];
static pthread_barrier_t both;

static void *allocate(void *place) {
    *(void **)place = malloc(16);
    /* No thread ends before the other has its block. */
    pthread_barrier_wait(&both);
    return NULL;
}

int main(int argc, char **argv) {
    const char *how = argc > 1 ? argv[1] : "";
    if (strcmp(how, "where") == 0) {
        printf("0x%lx\n", (unsigned long)(after - __executable_start));
        return 0;
    }
    if (strcmp(how, "threads") == 0) {
        pthread_t thread[2];
        pthread_barrier_init(&both, NULL, 2);
        for (int i = 0; i < 2; i++) pthread_create(&thread[i], NULL, allocate, &block[i]);
        for (int i = 0; i < 2; i++) pthread_join(thread[i], NULL);
    } else {
        /* Neighbours in any allocator that lays blocks of a size side by side:
         * of three in a row two share a line, or all are apart. */
        void *first = ask(16), *second = ask(16), *third = ask(16);
        int one = (uintptr_t)first / 64 == (uintptr_t)second / 64;
        block[0] = one ? first : second;
        block[1] = one ? second : third;
    }
    puts((uintptr_t)block[0] / 64 == (uintptr_t)block[1] / 64 ? "one line" : "apart");
    return argc > 2 ? atoi(argv[2]) : 0;
}
