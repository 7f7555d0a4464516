// Allocates blocks in every way in which an alignment can be requested; each size is
// requested once.
#include <malloc.h>
#include <new>
#include <stdlib.h>

struct alignas(128) Line {
    char bytes[128 * 9];
};

int main() {
    void *block = nullptr;
    volatile int failed = posix_memalign(&block, 64, 1001);
    free(block);
    free(aligned_alloc(256, 1024));
    free(memalign(48, 1003));
    free(valloc(1004));
    free(pvalloc(1005));
    free(malloc(1006));
    free(calloc(1, 1007));
    free(realloc(malloc(1008), 1009));
    Line *volatile line = new Line;
    delete line;
    return failed;
}
