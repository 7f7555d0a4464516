/* Has its own malloc in the executable. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
static char arena[1 << 20] __attribute__((aligned(16)));
static size_t used;
void *malloc(size_t n) {
    size_t at = __atomic_fetch_add(&used, (n + 31) & ~(size_t)15, __ATOMIC_RELAXED);
    *(size_t *)(arena + at) = n;
    return arena + at + 16;
}
void free(void *p) { (void)p; }
void *calloc(size_t n, size_t m) { return memset(malloc(n * m), 0, n * m); }
void *realloc(void *p, size_t n) {
    void *q = malloc(n);
    size_t old = p ? *(size_t *)((char *)p - 16) : 0;
    if (p) memcpy(q, p, old < n ? old : n);
    return q;
}
int main(void) {
    char *p = malloc(100);
    if (p < arena || p >= arena + sizeof arena) return 1;
    free(strdup(strcpy(p, "text")));
    printf("ready\n");
    fflush(stdout);
    while (getchar() != EOF) {}
    return 0;
}
