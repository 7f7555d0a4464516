/* The C library blocks all signals while it begins and ends threads, and frees memory then. Counts
 * how often a thread was seen to block SIGSEGV: a fault at such a moment kills the program. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { THREADS = 3000, AT_ONCE = 12 };

static atomic_int ended, over;

static void *detached(void *argument) {
    char *memory = malloc(300);
    memory[1] = 1;
    free(memory);
    atomic_fetch_add(&ended, 1);
    return argument;
}

/* Whether the thread blocks the signal now. */
static int blocks(const char *path) {
    char line[256];
    unsigned long mask = 0;
    FILE *file = fopen(path, "r");
    while (file && fgets(line, sizeof line, file))
        sscanf(line, "SigBlk: %lx", &mask);
    if (file)
        fclose(file);
    return mask >> (11 - 1) & 1;
}

static void *look(void *path) {
    long seen = 0;
    while (!atomic_load(&over))
        seen += blocks(path);
    return (void *)seen;
}

int main(void) {
    char path[64];
    pthread_t looking;
    void *seen;
    snprintf(path, sizeof path, "/proc/self/task/%ld/status", syscall(SYS_gettid));
    if (pthread_create(&looking, NULL, look, path))
        return 1;
    for (int begun = 0; begun < THREADS; begun += AT_ONCE) {
        for (int i = 0; i < AT_ONCE; i++) {
            pthread_t thread;
            if (pthread_create(&thread, NULL, detached, NULL))
                return 1;
            pthread_detach(thread);
        }
        while (atomic_load(&ended) < begun + AT_ONCE)
            usleep(100);
    }
    atomic_store(&over, 1);
    pthread_join(looking, &seen);
    printf("blocked %s\n", seen ? "at times" : "never");
    return 0;
}
