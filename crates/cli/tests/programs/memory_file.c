/* Two threads whose counters share a line, while the first thread looks at them through the file of
 * the program's memory: what it reads there lies between what it reads before and after, and what it
 * writes there is what it reads. It opens the file anew each time: by `open`, with -DSTREAM by
 * `fopen`, with -DBARE by `syscall`. The argument says how often the counters are increased. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

static struct {
    uint64_t counts[2];
    uint64_t mark;
} shared __attribute__((aligned(4096)));

static long rounds;
static volatile int ended;

static void *count(void *argument) {
    volatile uint64_t *own = argument;
    for (long i = 0; i < rounds; i++) *own += (uint64_t)i & 3;
    __sync_fetch_and_add(&ended, 1);
    return NULL;
}

/* Reads the counter of thread `which`, and writes `mark`, through the file. */
static uint64_t through_the_file(int which, uint64_t mark) {
    uint64_t value = 0;
    off_t at = (off_t)(uintptr_t)&shared.counts[which];
    off_t to = (off_t)(uintptr_t)&shared.mark;
#if STREAM
    FILE *stream = fopen("/proc/self/mem", "r+");
    if (!stream) abort();
    int file = fileno(stream);
#elif BARE
    int file = (int)syscall(SYS_openat, AT_FDCWD, "/proc/self/mem", O_RDWR);
#else
    int file = open("/proc/self/mem", O_RDWR);
#endif
    if (file < 0 || pread(file, &value, sizeof value, at) != sizeof value) abort();
    if (pwrite(file, &mark, sizeof mark, to) != sizeof mark) abort();
#if STREAM
    fclose(stream);
#else
    close(file);
#endif
    return value;
}

int main(int argc, char **argv) {
    rounds = argc > 1 ? atol(argv[1]) : 100000000;
    pthread_t threads[2];
    for (int i = 0; i < 2; i++) pthread_create(&threads[i], NULL, count, &shared.counts[i]);
    volatile uint64_t *counts = shared.counts, *mark = &shared.mark;
    long wrong = 0;
    for (uint64_t turn = 1; ended < 2; turn++) {
        usleep(turn < 4 ? 1000 : 100000);
        int which = turn & 1;
        uint64_t before = counts[which];
        uint64_t seen = through_the_file(which, turn);
        uint64_t after = counts[which];
        wrong += seen < before || seen > after || *mark != turn;
    }
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    printf("%llu %llu wrong %ld\n", (unsigned long long)counts[0], (unsigned long long)counts[1], wrong);
    return wrong != 0;
}
