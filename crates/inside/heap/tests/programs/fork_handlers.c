/* Allocates wherever a program may while it forks: in its fork handlers, and in the handlers of
 * signals that arrive meanwhile. The fork handlers are registered before any library's, so the one
 * for before the fork runs after all others, and those for after it run before all others. */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static int calls;

/* Sizes with and without a fast path, with slices of their own, and with a mapping of its own. */
static const size_t sizes[] = {24, 1000, 1024, 5000, 50000, 300000, 40u << 20};
enum { SIZES = sizeof sizes / sizeof *sizes };

static void allocates(int signal) {
    (void)signal;
    char *block[SIZES];
    for (int i = 0; i < SIZES; i++) {
        block[i] = malloc(sizes[i]);
        if (block[i] == NULL) abort();
        memset(block[i], i + 1, sizes[i] < 1000 ? sizes[i] : 1000);
    }
    for (int i = 0; i < SIZES; i++) {
        block[i] = realloc(block[i], sizes[i] + 100);
        if (block[i] == NULL || block[i][sizes[i] < 1000 ? 0 : 999] != i + 1) abort();
        free(block[i]);
    }
    calls++;
}

static void forks(void) { raise(SIGUSR1); }

static void registers(void) { pthread_atfork(forks, forks, forks); }

__attribute__((section(".preinit_array"), used)) static void (*const first)(void) = registers;

static void *ends(void *unused) { return unused; }

int main(int argc, char **argv) {
    alarm(60);
    signal(SIGUSR1, allocates);
    if (argc > 1 && strcmp(argv[1], "threads") == 0) {
        pthread_t other;
        pthread_create(&other, NULL, ends, NULL);
        pthread_join(other, NULL);
    }
    for (int i = 1; i <= 20; i++) {
        pid_t child = fork();
        if (child == 0) {
            alarm(60);
            allocates(0);
            /* Two in each round so far, and this one. */
            _exit(calls == 2 * i + 1 ? 0 : 3);
        }
        int status = 0;
        if (child < 0 || waitpid(child, &status, 0) != child || status != 0) {
            fprintf(stderr, "child %d ended with %x\n", i, status);
            return 1;
        }
        if (calls != 2 * i) return 2;
    }
    puts("ok");
    return 0;
}
