/* An allocator that is easy to recognise: every block is a mapping of its own
 * and starts 0x30 bytes into it. */
#define _GNU_SOURCE
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <sys/syscall.h>
void *malloc(size_t n) {
    size_t *p = (size_t *)syscall(SYS_mmap, 0, n + 0x30, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    *p = n;
    return (char *)p + 0x30;
}
void free(void *p) { if (p) syscall(SYS_munmap, (char *)p - 0x30, *(size_t *)((char *)p - 0x30) + 0x30); }
void *calloc(size_t n, size_t m) { return malloc(n * m); }
void *realloc(void *p, size_t n) {
    if (!p) return malloc(n);
    size_t old = *(size_t *)((char *)p - 0x30);
    void *q = malloc(n);
    memcpy(q, p, old < n ? old : n);
    free(p);
    return q;
}
