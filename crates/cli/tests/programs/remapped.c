/* The C library itself unmaps memory while a thread computes: blocks that `free` unmaps, and then
 * others at the same addresses. One thread reads what the other announces by plain stores alone, so
 * that nothing else makes the change visible. The output must be the same however the program is
 * run. */
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#define BLOCKS 40
#define SIZE (1 << 20)
volatile unsigned long shared[512] __attribute__((aligned(4096)));
static char beside[4096] __attribute__((aligned(4096)));
static volatile unsigned char *volatile block[BLOCKS];
static volatile int said, seen, over;
#include <stdlib.h>
static long stale;
static void *compute(void *p) {
    while (!over) shared[1]++;
    return p;
}
static void *look(void *p) {
    int before = 0;
    while (!over) {
        shared[0]++;
        int now = said;
        if (now == before) continue;
        before = now;
        volatile unsigned char *at = block[(now - 1) % BLOCKS];
        unsigned char wanted = (unsigned char)(1 + (now - 1) / BLOCKS);
        if (at[5] != wanted || at[SIZE / 2] != wanted) stale++;
        seen = now;
    }
    return p;
}
static int protected(void) {
    char line[512];
    int found = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    while (fgets(line, sizeof line, maps)) found |= strstr(line, "sunder-memory") != 0;
    fclose(maps);
    return found;
}
int main(int count, char **argument) {
    int most = count > 1 ? atoi(argument[1]) : 0;
    mallopt(M_MMAP_THRESHOLD, SIZE / 2);
    for (int i = 0; i < BLOCKS; i++) {
        block[i] = malloc(SIZE);
        memset((void *)block[i], 0, SIZE);
    }
    pthread_t one, two;
    pthread_create(&one, NULL, look, NULL);
    pthread_create(&two, NULL, compute, NULL);
    /* Until the memory is sharable, if it ever is. */
    for (int i = 0; i < most && !protected(); i++) usleep(5000);
    usleep(50000);
    for (int now = 1; now <= 3 * BLOCKS; now++) {
        int i = (now - 1) % BLOCKS;
        free((void *)block[i]);
        volatile unsigned char *new = malloc(SIZE);
        memset((void *)new, 1 + (now - 1) / BLOCKS, SIZE);
        block[i] = new;
        said = now;
        while (seen != now) usleep(100);
        usleep(2000);
    }
    over = 1;
    pthread_join(one, NULL);
    pthread_join(two, NULL);
    unsigned char *zeroes = calloc(1, 3 * SIZE);
    for (int i = 0; i < 3 * SIZE; i++) stale += zeroes[i] != 0;
    printf("%ld stale\n", stale);
    return beside[0];
}
