/* Two threads share a line falsely. When its bytes have been moved and its page can't be accessed,
 * the program dies, by a fault, by abort, or by a signal that it sends itself; or says that it waited in
 * vain. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static volatile long counts[512] __attribute__((aligned(4096)));

static void *work(void *argument) {
    long which = (long)argument;
    volatile long own[8] = {0};
    for (long i = 0;; i++) {
        counts[which]++;
        own[i % 8] = i;
    }
    return NULL;
}

/* Whether the page can't be accessed, because its bytes have been moved. */
static int is_moved(void) {
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[512];
    int moved = 0;
    while (maps && fgets(line, sizeof line, maps)) {
        unsigned long from, to, page = (unsigned long)counts;
        char rights[8];
        if (sscanf(line, "%lx-%lx %7s", &from, &to, rights) == 3 && from <= page && page < to)
            moved = strncmp(rights, "---", 3) == 0;
    }
    if (maps) fclose(maps);
    return moved;
}

int main(int argc, char **argv) {
    pthread_t threads[2];
    for (long i = 0; i < 2; i++) pthread_create(&threads[i], NULL, work, (void *)i);
    int by_fault = argc < 2 || strcmp(argv[1], "fault") == 0;
    for (int looks = 0; looks < 1500; looks++) {
        usleep(20000);
        if (!is_moved()) continue;
        /* By then the threads execute copies of code. */
        usleep(100000);
        /* The bytes may have gone back meanwhile. */
        if (!is_moved()) continue;
        if (by_fault) *(volatile int *)argc = 1;
        if (argc > 1 && strcmp(argv[1], "kill") == 0) kill(getpid(), SIGQUIT);
        if (argc > 1 && strcmp(argv[1], "syscall") == 0) syscall(SYS_tkill, gettid(), SIGTRAP);
        abort();
    }
    puts("not moved");
    fflush(stdout);
    _exit(0);
}
