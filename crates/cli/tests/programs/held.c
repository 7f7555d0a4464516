/* Two threads count for a second: `apart` in two words of one line, `together` in one word. The first
 * thread looks again and again whether one of them is traced, and prints how often it was so. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static struct { atomic_long count[8]; } __attribute__((aligned(64))) shared;
static long other[2][8] __attribute__((aligned(64)));
static atomic_int done, started;
static pid_t threads_of[2];
static int apart;

static void *count(void *which) {
    long own = (long)which;
    threads_of[own] = gettid();
    atomic_fetch_add(&started, 1);
    atomic_long *mine = &shared.count[apart ? own : 0];
    while (!atomic_load_explicit(&done, memory_order_relaxed)) {
        for (long i = 0; i < 1000; i++) {
            atomic_fetch_add_explicit(mine, 1, memory_order_relaxed);
            other[own][i % 8] += i;
        }
    }
    return 0;
}

static int is_traced(pid_t thread) {
    char path[64], line[256];
    snprintf(path, sizeof path, "/proc/self/task/%d/status", thread);
    FILE *file = fopen(path, "r");
    int tracer = 0;
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "TracerPid: %d", &tracer) == 1) break;
    if (file) fclose(file);
    return tracer != 0;
}

int main(int argc, char **argv) {
    apart = argc > 1 && strcmp(argv[1], "apart") == 0;
    pthread_t threads[2];
    for (long i = 0; i < 2; i++) pthread_create(&threads[i], 0, count, (void *)i);
    while (atomic_load(&started) < 2) usleep(100);
    long traced = 0;
    struct timespec begin, now;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    do {
        for (int i = 0; i < 2; i++) traced += is_traced(threads_of[i]);
        usleep(500);
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while (now.tv_sec - begin.tv_sec + (now.tv_nsec - begin.tv_nsec) / 1e9 < 1.0);
    atomic_store(&done, 1);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], 0);
    printf("traced %ld\n", traced);
    return 0;
}
