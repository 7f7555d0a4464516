/* errno after successful allocations and frees is what it was before, in every
 * thread from its first call on; failures set it. */
#define _GNU_SOURCE
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
static void *all(void *a) {
    errno = 77;
    for (int i = 0; i < 3000; i++) {
        size_t n = i % 100 ? 10 + i : 40000 + i;
        void *p = malloc(n), *q = calloc(3, n), *r = NULL;
        if (malloc_usable_size(p) < n) abort();
        if (posix_memalign(&r, 64, n)) abort();
        p = realloc(p, 2 * n);
        free(p); free(q); free(r); free(NULL);
        if (errno != 77) { printf("errno became %d\n", errno); exit(1); }
    }
    if (malloc((size_t)1 << 62) || errno != ENOMEM) exit(2);
    errno = 0;
    if (calloc((size_t)1 << 40, (size_t)1 << 40) || errno != ENOMEM) exit(3);
    errno = 0;
    if (reallocarray(NULL, (size_t)1 << 40, (size_t)1 << 40) || errno != ENOMEM) exit(4);
    void *p = NULL;
    if (posix_memalign(&p, 3, 10) != EINVAL || p) exit(5);
    p = malloc(10);
    if (realloc(p, 0) != NULL) exit(6); /* frees, as the C library documents */
    return a;
}
int main(void) {
    pthread_t t;
    all(NULL);
    for (int i = 0; i < 4; i++) { pthread_create(&t, NULL, all, NULL); pthread_join(t, NULL); }
    puts("as it was");
    return 0;
}
