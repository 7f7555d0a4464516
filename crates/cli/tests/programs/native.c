/* Which part of the C library's code, of the arguments and of the environment is unchanged.
 * `apart`: two threads count, each on a page of its own, and nothing is to be isolated.
 * `beside`: they share a page until the memory of the process shows that a thread was
 * isolated. `wait`: the same, and then all threads wait to be killed. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

struct slot { volatile unsigned long n; char rest[4096 - 8]; };
struct slot apart[2] __attribute__((aligned(4096)));
volatile unsigned long shared[512] __attribute__((aligned(4096)));
static volatile int enough;

static void *alone(void *p) {
    struct slot *mine = &apart[(long)p];
    while (mine->n < 400000000) mine->n++;
    return 0;
}

static void *beside(void *p) {
    volatile unsigned long *mine = &shared[(long)p];
    unsigned long n = 0;
    while (!enough) { (*mine)++; n++; }
    printf("%d\n", *mine == n);
    return 0;
}

static void both(void *(*what)(void *), void (*meanwhile)(void)) {
    pthread_t threads[2];
    for (long i = 0; i < 2; i++) pthread_create(&threads[i], 0, what, (void *)i);
    meanwhile();
    for (int i = 0; i < 2; i++) pthread_join(threads[i], 0);
}

static void nothing(void) {}

static void until_isolated(void) {
    char line[512];
    int found = 0;
    for (int i = 0; i < 4000 && !found; i++) {
        FILE *maps = fopen("/proc/self/maps", "r");
        while (fgets(line, sizeof line, maps)) found |= strstr(line, "sunder-memory") != 0;
        fclose(maps);
        usleep(5000);
    }
    enough = 1;
}

/* How many bytes of the C library's code differ from its file. */
static long changed(void) {
    char line[512], path[512];
    unsigned long start, end, offset;
    long bytes = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    while (fgets(line, sizeof line, maps)) {
        char mode[8];
        if (sscanf(line, "%lx-%lx %7s %lx %*s %*s %511s", &start, &end, mode, &offset, path) != 5) continue;
        if (strcmp(mode, "r-xp") || !strstr(path, "/libc.so.6")) continue;
        int file = open(path, O_RDONLY);
        char *whole = mmap(0, end - start, PROT_READ, MAP_PRIVATE, file, (long)offset);
        if (whole == MAP_FAILED) return -1;
        for (unsigned long i = 0; i < end - start; i++) bytes += whole[i] != ((char *)start)[i];
        munmap(whole, end - start);
        close(file);
    }
    fclose(maps);
    return bytes;
}

/* Whether the kernel's file has `words`, in their order. Between them may be variables that the
 * program does not see: those that a preloaded library has removed from its environment. */
static int told(const char *path, char **words) {
    static char text[1 << 20];
    FILE *file = fopen(path, "r");
    size_t bytes = fread(text, 1, sizeof text - 1, file), at = 0;
    fclose(file);
    for (; *words; words++) {
        while (at < bytes && strcmp(text + at, *words)) at += strlen(text + at) + 1;
        if (at >= bytes) return 0;
        at += strlen(text + at) + 1;
    }
    return bytes > 0;
}

int main(int count, char **words, char **environment) {
    int quiet = !strcmp(words[1], "apart");
    setvbuf(stdout, 0, _IOLBF, 0);
    if (quiet) both(alone, nothing); else both(beside, until_isolated);
    printf("code %s\n", changed() ? "changed" : "as in the file");
    printf("arguments %d, environment %d\n", told("/proc/self/cmdline", words), told("/proc/self/environ", environment));
    if (count > 2 && !strcmp(words[2], "wait")) for (;;) pause();
    return 0;
}
