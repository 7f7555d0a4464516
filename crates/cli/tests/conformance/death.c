/* Ends of a program: by a signal in a thread, by exit or abort from a thread, by the
 * end of the first thread while others live. The second argument says which. */
#include "check.h"
#include <sys/syscall.h>

static volatile int *volatile nowhere;

/* Blocks or unblocks a real-time signal by the kernel's call, so that only one thread can get it. */
static void only_here(int how) {
    unsigned long set = 1UL << (SIGRTMAX - 2);
    CHECK(syscall(SYS_rt_sigprocmask, how, &set, NULL, sizeof set) == 0);
}

static void at_exit(void) { puts("at exit"); }

static void *compute(void *number) {
    for (;;) heat((long)number, 1000);
    return NULL;
}

static void *end(void *how) {
    heat(0, 1000000);
    if (strcmp(how, "segv") == 0) *nowhere = 1;
    if (strcmp(how, "abort") == 0) abort();
    if (strcmp(how, "exit") == 0) exit(7);
    if (strcmp(how, "quick") == 0) _exit(8);
    if (strcmp(how, "kill") == 0) kill(getpid(), SIGTERM);
    if (strcmp(how, "bell") == 0) kill(getpid(), SIGRTMAX - 1);
    if (strcmp(how, "aside") == 0) {
        only_here(SIG_UNBLOCK);
        kill(getpid(), SIGRTMAX - 1);
    }
    if (strcmp(how, "trap") == 0) __builtin_trap();
    if (strcmp(how, "last") == 0) {
        puts("the last thread ends");
        return NULL;
    }
    for (;;) pause();
}

static void *soon(void *unused) {
    heat(1, 1000000);
    return unused;
}

int main(int argc, char **argv) {
    arguments(argc, argv);
    CHECK(argc > 2);
    setvbuf(stdout, NULL, _IOLBF, 0);
    atexit(at_exit);
    puts("begin");
    pthread_t thread;
    int last = strcmp(argv[2], "last") == 0;
    if (strcmp(argv[2], "aside") == 0) only_here(SIG_BLOCK);
    DO(pthread_create(&thread, NULL, last ? soon : compute, (void *)1L));
    DO(pthread_create(&thread, NULL, end, argv[2]));
    if (last) pthread_exit(NULL);
    for (;;) heat(2, 1000);
}
