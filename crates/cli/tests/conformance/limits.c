/* What a program may use up: keys of thread-local values, locked memory, descriptors. */
#include "check.h"
#include <limits.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>

static void *work(void *number) {
    heat((long)number, 20000 * scale);
    return NULL;
}

static void hot_work(void) {
    in_threads(work);
    for (long i = 0; i < THREADS; i++) cool(i, 20000 * scale);
}

static long ended;

static void count_end(void *value) {
    __atomic_fetch_add(&ended, (long)value, __ATOMIC_RELAXED);
}

static pthread_key_t keys[PTHREAD_KEYS_MAX + 1];

static void *set_last(void *last) {
    DO(pthread_setspecific(keys[(long)last], (void *)1));
    heat(0, 1000);
    return NULL;
}

/* As many keys as the C library has, each of which works. */
static void all_keys(void) {
    long count = 0;
    printf("key 0 before it is made: %d\n", pthread_setspecific(0, &ended));
    while (pthread_key_create(&keys[count], count_end) == 0) count++;
    printf("keys %ld\n", count);
    pthread_t thread;
    DO(pthread_create(&thread, NULL, set_last, (void *)(count - 1)));
    DO(pthread_join(thread, NULL));
    CHECK(ended == 1);
    cool(0, 1000);
    hot_work();
    while (count > 0) DO(pthread_key_delete(keys[--count]));
}

static void locked_memory(void) {
    struct rlimit limit;
    CHECK(getrlimit(RLIMIT_MEMLOCK, &limit) == 0);
    int result = mlockall(MCL_CURRENT);
    printf("locked %d %d\n", result, result == 0 ? 0 : errno);
    hot_work();
    CHECK(munlockall() == 0);
}

static void spent(int signal) {
    (void)signal;
    if (write(1, "spent\n", 6) != 6) _exit(97);
    _exit(42);
}

static void *without_end(void *number) {
    for (;;) heat((long)number, 1000000);
    return NULL;
}

/* All threads together get one more second, after which a signal comes. */
static void cpu_time(void) {
    struct timespec used;
    CHECK(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used) == 0);
    struct rlimit limit = {(rlim_t)used.tv_sec + 1, (rlim_t)used.tv_sec + 6};
    CHECK(signal(SIGXCPU, spent) != SIG_ERR);
    CHECK(setrlimit(RLIMIT_CPU, &limit) == 0);
    in_threads(without_end);
}

static volatile int stop;

static void *until_stopped(void *number) {
    while (!stop) heat((long)number, 1000);
    return NULL;
}

/* A program without children has none of any kind while its threads compute. */
static void no_children(void) {
    pthread_t thread[2];
    for (long i = 0; i < 2; i++) DO(pthread_create(&thread[i], NULL, until_stopped, (void *)i));
    for (int i = 0; i < 100; i++) {
        CHECK(waitpid(-1, NULL, __WALL | WNOHANG) == -1 && errno == ECHILD);
        CHECK(wait4(-1, NULL, __WCLONE, NULL) == -1 && errno == ECHILD);
        heat(2, 300000 * scale);
    }
    stop = 1;
    for (int i = 0; i < 2; i++) DO(pthread_join(thread[i], NULL));
    puts("no children");
}

int main(int argc, char **argv) {
    arguments(argc, argv);
    if (argc > 2 && strcmp(argv[2], "time") == 0) cpu_time();
    if (argc > 2) {
        no_children();
        return 0;
    }
    all_keys();
    locked_memory();
    hot_work();
    puts("done");
    return 0;
}
