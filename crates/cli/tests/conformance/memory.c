/* Mappings that threads make, move, protect and drop; files mapped both ways;
 * libraries opened late; heaps. */
#include "check.h"
#include <dlfcn.h>
#include <fcntl.h>
#include <malloc.h>
#include <math.h>
#include <setjmp.h>
#include <sys/mman.h>

#define PAGE 4096L
#define BOTH (PROT_READ | PROT_WRITE)

static char *volatile handed;
static int file;
static pthread_barrier_t together;
static __thread sigjmp_buf back;
static long caught[THREADS];

static void on_fault(int signal) {
    (void)signal;
    siglongjmp(back, 1);
}

static int faults(volatile char *at) {
    if (sigsetjmp(back, 1)) return 1;
    *at = 1;
    return 0;
}

static void *map(void *number) {
    long own = (long)number;
    for (long i = 0; i < 20 * scale; i++) {
        /* One thread maps it, all use it, another unmaps it. */
        if (own == i % THREADS) {
            handed = mmap(NULL, 64 * PAGE, BOTH, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            CHECK(handed != MAP_FAILED);
        }
        pthread_barrier_wait(&together);
        char *mine = handed + own * 16 * PAGE;
        for (long k = 0; k < 16 * PAGE; k++) CHECK(mine[k] == 0);
        memset(mine, (int)own + 1, 16 * PAGE);
        heat(own, 20000);
        pthread_barrier_wait(&together);
        for (long k = 0; k < 64; k++) CHECK(handed[k * PAGE] == k / 16 + 1);
        pthread_barrier_wait(&together);
        if (own == (i + 1) % THREADS) {
            CHECK(madvise(handed, 16 * PAGE, MADV_DONTNEED) == 0);
            CHECK(handed[0] == 0 && handed[16 * PAGE - 1] == 0 && handed[16 * PAGE] == 2);
            CHECK(mprotect(handed + PAGE, PAGE, PROT_READ) == 0);
        }
        pthread_barrier_wait(&together);
        CHECK(faults(handed + PAGE));
        caught[own]++;
        pthread_barrier_wait(&together);
        if (own == (i + 2) % THREADS) {
            char *moved = mremap(handed + 32 * PAGE, 32 * PAGE, 128 * PAGE, MREMAP_MAYMOVE);
            CHECK(moved != MAP_FAILED && moved[0] == 3 && moved[31 * PAGE] == 4 && moved[127 * PAGE] == 0);
            CHECK(munmap(moved, 128 * PAGE) == 0 && munmap(handed, 32 * PAGE) == 0);
            char *there = mmap(handed, 32 * PAGE, BOTH, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
            CHECK(there == handed && there[16 * PAGE] == 0);
        }
        pthread_barrier_wait(&together);
        CHECK(handed[20 * PAGE] == 0);
        pthread_barrier_wait(&together);
        if (own == 0) CHECK(munmap(handed, 32 * PAGE) == 0);
        pthread_barrier_wait(&together);
    }
    return NULL;
}

/* Writes to a private mapping are visible to the whole process, not to the thread alone. */
static char *private_file, *shared_file;

static void *write_files(void *number) {
    long own = (long)number;
    for (long k = 0; k < PAGE; k++) private_file[own * PAGE + k] = shared_file[own * PAGE + k] = 'A' + own;
    heat(own, 100000);
    pthread_barrier_wait(&together);
    for (long k = 0; k < THREADS; k++) CHECK(private_file[k * PAGE] == 'A' + k);
    if (own == 0) {
        char byte;
        for (long k = 0; k < THREADS; k++)
            CHECK(pread(file, &byte, 1, (2 + THREADS + k) * PAGE) == 1 && byte == 'A' + k);
        CHECK(pread(file, &byte, 1, PAGE) == 1 && byte == 'x');
    }
    return NULL;
}

static void *allocate(void *number) {
    long own = (long)number;
    unsigned seed = (unsigned)own + 1;
    char *blocks[64] = {0};
    size_t sizes[64] = {0};
    for (long i = 0; i < 20000 * scale; i++) {
        seed = seed * 1103515245 + 12345;
        int k = seed >> 16 & 63;
        for (size_t n = 0; n < sizes[k]; n += 61) CHECK(blocks[k][n] == (char)(k + own));
        size_t size = (seed >> 8) % 1000 == 0 ? 300000 : (seed >> 4) % 600 + 1;
        switch (seed >> 24 & 3) {
        case 0:
            blocks[k] = realloc(blocks[k], size);
            break;
        case 1:
            free(blocks[k]);
            DO(posix_memalign((void **)&blocks[k], 256, size));
            CHECK((uintptr_t)blocks[k] % 256 == 0);
            break;
        case 2:
            free(blocks[k]);
            blocks[k] = calloc(1, size);
            for (size_t n = 0; n < size; n += 97) CHECK(blocks[k][n] == 0);
            break;
        default:
            free(blocks[k]);
            blocks[k] = malloc(size);
        }
        CHECK(blocks[k] != NULL && malloc_usable_size(blocks[k]) >= size);
        memset(blocks[k], (char)(k + own), sizes[k] = size);
        if (i % 64 == 0) heat(own, 100);
    }
    for (int k = 0; k < 64; k++) free(blocks[k]);
    return NULL;
}

static void *open_library(void *number) {
    long own = (long)number;
    for (long i = 0; i < 10; i++) {
        void *library = dlopen("libm.so.6", RTLD_NOW | RTLD_LOCAL);
        CHECK(library != NULL);
        double (*root)(double) = (double (*)(double))dlsym(library, "sqrt");
        CHECK(root != NULL && root(49.0) == 7.0);
        heat(own, 1000);
        CHECK(dlclose(library) == 0);
    }
    return NULL;
}

int main(int argc, char **argv) {
    arguments(argc, argv);
    struct sigaction action = {.sa_handler = on_fault};
    CHECK(sigaction(SIGSEGV, &action, NULL) == 0);
    DO(pthread_barrier_init(&together, NULL, THREADS));
    in_threads(map);
    for (int i = 0; i < THREADS; i++) CHECK(caught[i] == 20 * scale);
    puts("mappings: done");

    char name[] = "/tmp/sunder-conformance-XXXXXX";
    file = mkstemp(name);
    CHECK(file >= 0 && unlink(name) == 0);
    char page[PAGE];
    memset(page, 'x', sizeof page);
    for (int i = 0; i < 16; i++) CHECK(write(file, page, sizeof page) == PAGE);
    private_file = mmap(NULL, THREADS * PAGE, BOTH, MAP_PRIVATE, file, PAGE);
    shared_file = mmap(NULL, THREADS * PAGE, BOTH, MAP_SHARED, file, (2 + THREADS) * PAGE);
    CHECK(private_file != MAP_FAILED && shared_file != MAP_FAILED);
    in_threads(write_files);
    for (int k = 0; k < THREADS; k++) CHECK(private_file[k * PAGE + 17] == 'A' + k);
    puts("files: done");
    in_threads(allocate);
    puts("heap: done");
    in_threads(open_library);
    puts("libraries: done");
    void *top = sbrk(0);
    if (sbrk(3 * PAGE) != (void *)-1) {
        memset(top, 1, 3 * PAGE);
        CHECK(sbrk(-3 * PAGE) != (void *)-1 && sbrk(0) == top);
    }
    puts("break: done");
    return 0;
}
