/* Two threads share a line falsely, and after a while other bytes of the same object. The second
 * phase begins when the bytes of the first have been moved: the program sees the mapping of copies
 * of its code. Then a system call needs the object in place, so the bytes go back; not with an
 * argument. With "beside" the other bytes lie on the next page, and from then on both threads read a
 * text that begins on the one page and ends on the other; before, they read only its first half. It
 * ends when they have been moved into other groups, or after some seconds. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

/* Microseconds. */
#define STEP 5000
#define A_WHILE 400000
/* Seconds. */
#define AT_MOST 8

static struct {
    volatile long word[8];
    char text[512];
} __attribute__((aligned(4096))) shared;

/* 0 or 1; 2 ends the threads. */
static volatile int phase __attribute__((aligned(4096)));
static long done[2][2];
/* With "beside": two pages. The words of the second phase lie in the middle of the second page. */
static volatile long *pages;
enum { WORDS = 512, SECOND = WORDS + WORDS / 2, TEXT = 512 };

static void *work_beside(void *argument) {
    long which = (long)argument, mine[2] = {0}, read = 0;
    const volatile char *text = (const volatile char *)(pages + WORDS) - TEXT / 2;
    for (int now; (now = phase) < 2; mine[now] += 10000) {
        volatile long *word = &pages[SECOND * now + which];
        long length = now ? TEXT : TEXT / 2;
        /* A locked instruction costs far more on a shared line, also where lines are passed on
         * cheaply; then moving it always pays, although the text is read through checks. */
        for (long i = 0; i < 10000; i++) {
            __atomic_fetch_add(word, 1, __ATOMIC_RELAXED);
            read += text[i % length];
        }
    }
    memcpy(done[which], mine, sizeof mine);
    return (void *)(read & 1);
}

static void *work(void *argument) {
    long which = (long)argument, mine[2] = {0};
    volatile long own[8] = {0};
    for (int now; (now = phase) < 2; mine[now] += 10000) {
        volatile long *word = &shared.word[4 * now + which];
        for (long i = 0; i < 10000; i++) {
            (*word)++;
            own[i % 8] = i;
        }
    }
    memcpy(done[which], mine, sizeof mine);
    return NULL;
}

/* How many areas of moved bytes have copies of code. */
static int areas(void) {
    char line[512];
    int count = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps && fgets(line, sizeof line, maps))
        count += strstr(line, "r-xs") && strstr(line, "sunder-remap");
    if (maps) fclose(maps);
    return count;
}

static long seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec;
}

/* Waits until there are `wanted` areas, and a while longer. */
static int wait_for(int wanted) {
    long end = seconds() + AT_MOST;
    int there;
    while (!(there = areas() >= wanted) && seconds() < end) usleep(STEP);
    if (there) usleep(A_WHILE);
    return there;
}

int main(int argc, char **argv) {
    pthread_t threads[2];
    int ends[2], wrong = pipe(ends) != 0;
    int beside = argc > 1 && strcmp(argv[1], "beside") == 0;
    /* Far from everything: nameless memory right behind a library's mapping may be the library's. */
    pages = mmap((void *)0x200000000000, 2 * WORDS * sizeof *pages, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    if (pages == MAP_FAILED) return 1;
    for (long i = 0; i < 2; i++)
        pthread_create(&threads[i], NULL, beside ? work_beside : work, (void *)i);
    if (wait_for(1)) {
        phase = 1;
        if (argc == 1) wrong += write(ends[1], shared.text, 64) != 64;
        wait_for(2);
    }
    phase = 2;
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < 4; i++) {
        volatile long *word = beside ? &pages[SECOND * (i / 2)] : &shared.word[4 * (i / 2)];
        wrong += word[i % 2] != done[i % 2][i / 2];
    }
    printf("wrong %d\n", wrong);
    return 0;
}
