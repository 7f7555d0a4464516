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

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "";
    char *small = malloc(40), *other = malloc(40), *large = malloc(300000);
    char local[64] = "";
    if (strcmp(what, "double") == 0) {
        free(small);
        free(other);
        free(small);
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
