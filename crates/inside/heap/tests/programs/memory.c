/* Memory does not grow while freed memory suffices, and is returned to the system when much of
 * it is free. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static long resident(void) {
    long pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (f == NULL || fscanf(f, "%*d %ld", &pages) != 1) exit(3);
    fclose(f);
    return pages * 4;
}

static void must(int holds, const char *what, long kib) {
    if (!holds) {
        fprintf(stderr, "%s: %ld KiB\n", what, kib);
        exit(1);
    }
}

enum { MANY = 400000 };
static void *block[MANY];

static void fill(size_t size) {
    for (int i = 0; i < MANY; i++) block[i] = memset(malloc(size), 1, size);
}

static void empty(void) {
    for (int i = 0; i < MANY; i++) free(block[i]);
}

static void *empty_elsewhere(void *unused) {
    empty();
    return unused;
}

static void *leave_some(void *unused) {
    for (int i = 0; i < 100; i++) free(memset(malloc(1000), 1, 1000));
    return unused;
}

int main(void) {
    long start = resident();
    /* Another size each time: free memory must serve any size. */
    for (size_t size = 100; size < 400; size += 50) {
        fill(size);
        empty();
    }
    long kept = resident() - start;
    /* The largest filling was 140 MB; at most a quarter of it may be kept. */
    must(kept < 40 << 10, "kept after everything was freed", kept);
    /* Blocks that another thread frees are reused. */
    for (int i = 0; i < 4; i++) {
        pthread_t thread;
        fill(200);
        pthread_create(&thread, NULL, empty_elsewhere, NULL);
        pthread_join(thread, NULL);
    }
    long after = resident() - start;
    must(after < 140 << 10, "after frees by other threads", after);
    /* Ended threads leave no memory in use. */
    for (int i = 0; i < 3000; i++) {
        pthread_t thread;
        pthread_create(&thread, NULL, leave_some, NULL);
        pthread_join(thread, NULL);
    }
    long threads = resident() - start;
    must(threads < after + (8 << 10), "after many threads", threads);
    /* Huge blocks are returned to the system at once. */
    for (int i = 0; i < 20; i++) free(memset(malloc(100u << 20), 1, 100u << 20));
    long huge = resident() - start;
    must(huge < threads + (8 << 10), "after huge blocks", huge);
    puts("ok");
    return 0;
}
