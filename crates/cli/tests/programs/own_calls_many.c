/* Threads pass memory of the heap to system calls that a library makes itself
 * (own_calls_library.c), and wait for each other by such calls; all results are known. The argument
 * is the number of rounds. With -DLATE a second one is the library's path: it is loaded later. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

typedef long call(long, long, long, long);
#ifdef LATE
#include <dlfcn.h>
static call *own_again, *own_futex, *own_clock, *own_write, *own_read, *own_pipe, *own_map, *own_unmap;
static long (*own_thread)(void);

static void load(const char *path) {
    void *library = dlopen(path, RTLD_NOW);
    if (!library) exit(9);
    own_again = (call *)dlsym(library, "own_again");
    own_futex = (call *)dlsym(library, "own_futex");
    own_clock = (call *)dlsym(library, "own_clock");
    own_write = (call *)dlsym(library, "own_write");
    own_read = (call *)dlsym(library, "own_read");
    own_pipe = (call *)dlsym(library, "own_pipe");
    own_map = (call *)dlsym(library, "own_map");
    own_unmap = (call *)dlsym(library, "own_unmap");
    own_thread = (long (*)(void))dlsym(library, "own_thread");
}
#else
call own_again, own_futex, own_clock, own_write, own_read, own_pipe, own_map, own_unmap;
long own_thread(void);
#endif

enum { WAIT = 0 | 128, WAKE = 1 | 128, SHARED = 128, AGAIN = -11 };

/* One element per thread; the elements lie side by side in the heap. */
struct place {
    atomic_int word;
    int two[2];
    struct timespec time;
    char text[40];
    long sum;
};

static struct place *places;
static atomic_int *turn;
static long rounds;
static atomic_long wrong;

static void expect(long result, long wanted) {
    if (result != wanted) atomic_fetch_add(&wrong, 1);
}

static void *use(void *argument) {
    long own = (long)argument;
    struct place *mine = &places[own];
    for (long i = 0; i < rounds; i++) {
        mine->sum += i;
        atomic_store(&mine->word, (int)i);
        expect(own_futex((long)&mine->word, WAIT, i + 1, 0), AGAIN);
        expect(own_again((long)&mine->word, WAIT & ~SHARED, i + 1, 0), AGAIN);
        expect(own_futex((long)&mine->word, WAKE, 1, 0), 0);
        expect(own_clock(CLOCK_THREAD_CPUTIME_ID, (long)&mine->time, 0, 0), 0);
        if (i % 64 == 0) {
            expect(own_pipe((long)mine->two, 0, 0, 0), 0);
            snprintf(mine->text, sizeof mine->text, "%ld of %ld", i, own);
            long length = (long)strlen(mine->text);
            expect(own_write(mine->two[1], (long)mine->text, length, 0), length);
            char *back = mine->text + 20;
            expect(own_read(mine->two[0], (long)back, length, 0), length);
            expect(memcmp(mine->text, back, (size_t)length), 0);
            close(mine->two[0]);
            close(mine->two[1]);
            long page = own_map(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS);
            *(char *)page = 1;
            expect(own_unmap(page, 4096, 0, 0), 0);
            expect(own_thread(), gettid());
        }
    }
    return NULL;
}

/* Two threads take turns: a waiting thread is woken wherever the word has been moved meanwhile. */
static void *ping(void *argument) {
    int own = (int)(long)argument;
    for (long i = 0; i < rounds / 4; i++) {
        for (;;) {
            int now = atomic_load(turn);
            if (now == own) break;
            long result = own_futex((long)turn, WAIT, now, 0);
            if (result != 0 && result != AGAIN && result != -4) expect(result, 0);
        }
        places[own].sum++;
        atomic_store(turn, 1 - own);
        own_futex((long)turn, WAKE, 1, 0);
    }
    return NULL;
}

int main(int count, char **arguments) {
    rounds = count > 1 ? atol(arguments[1]) : 20000;
    places = calloc(4, sizeof *places);
    turn = calloc(16, sizeof *turn);
#ifdef LATE
    for (volatile long i = 0; i < rounds * 1000; i++) places[i & 3].sum = i;
    for (int i = 0; i < 4; i++) places[i].sum = 0;
    load(arguments[2]);
#endif
    pthread_t thread[4];
    for (long i = 0; i < 4; i++) pthread_create(&thread[i], NULL, use, (void *)i);
    for (int i = 0; i < 4; i++) pthread_join(thread[i], NULL);
    for (long i = 0; i < 2; i++) pthread_create(&thread[i], NULL, ping, (void *)i);
    for (int i = 0; i < 2; i++) pthread_join(thread[i], NULL);
    for (int i = 0; i < 4; i++) printf("%ld ", places[i].sum);
    printf("wrong %ld\n", atomic_load(&wrong));
    return 0;
}
