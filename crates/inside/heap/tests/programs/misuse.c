/* One way to misuse the heap, named by the argument. */
#include <malloc.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static void *release(void *block) {
    free(block);
    return NULL;
}

static void release_elsewhere(void *block) {
    pthread_t thread;
    pthread_create(&thread, NULL, release, block);
    pthread_join(thread, NULL);
}

/* One call site for all small blocks. */
static char *get(void) {
    return malloc(40);
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "";
    char *small = get(), *other = get(), *large = malloc(300000);
    char local[64] = "";
    if (strcmp(what, "double") == 0) {
        free(small);
        free(other);
        free(small);
    } else if (strcmp(what, "write") == 0) {
        free(other);
        free(small);
        memset(small, 'A', 8);
        small = get();
        memset(get(), 0, 40);
    } else if (strcmp(what, "write-byte") == 0) {
        free(other);
        free(small);
        small[5]++;
        small = get();
    } else if (strcmp(what, "write-second") == 0) {
        free(other);
        free(small);
        small[8] ^= 1;
        small = get();
    } else if (strcmp(what, "looks-free") == 0) {
        /* The words that a free block has, in one that is not. */
        free(other);
        free(small);
        long words[2];
        memcpy(words, small, sizeof words);
        char *again = get();
        words[0] ^= 32;
        memcpy(again, words, sizeof words);
        free(again);
        memset(get(), 0, 40);
    } else if (strcmp(what, "write-remote") == 0) {
        release_elsewhere(small);
        release_elsewhere(other);
        memset(small, 'A', 8);
        for (int i = 0; i < 100000; i++)
            memset(get(), 0, 40);
    } else if (strcmp(what, "write-behind") == 0) {
        /* Only the rest of the block: as with the C library's heap, nothing happens. */
        free(small);
        memset(small + 16, 'A', 24);
        memset(get(), 0, 40);
    } else if (strcmp(what, "double-remote") == 0) {
        release_elsewhere(small);
        release_elsewhere(other);
        release_elsewhere(small);
    } else if (strcmp(what, "double-large") == 0) {
        free(large);
        free(large);
    } else if (strcmp(what, "inside") == 0) {
        free(small + 16);
    } else if (strcmp(what, "inside-large") == 0) {
        free(large + 4096);
    } else if (strcmp(what, "stack") == 0) {
        free(local + 16);
    } else if (strcmp(what, "usable") == 0) {
        return (int)malloc_usable_size(local + 16);
    }
    return 0;
}
