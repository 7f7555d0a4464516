/* What a program's address space promises once its memory was made sharable, while two threads
 * compute on neighbours of one page. The first argument is the case. With a second one the program
 * waits until the memory of the case is sharable; the output is the same as without. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PAGE 4096L
#define MIB (1L << 20)
#define BOTH (PROT_READ | PROT_WRITE)
#define ANONYMOUS (MAP_PRIVATE | MAP_ANONYMOUS)

struct slot { volatile unsigned long n, sum; };
struct slot shared[256] __attribute__((aligned(4096)));
static volatile int enough;
static int waits;

/* The block that the first thread is to fill or to add up. */
static char *volatile given;
static volatile long asked, answered, fills, sum;

static __attribute__((noinline)) void serve(void) {
    char *at = given;
    long all = 0;
    for (long i = 0; i < MIB; i++)
        if (fills) at[i] = (char)(i % 251 + 1);
        else all += at[i];
    sum = all;
    answered = asked;
}

static void *count(void *p) {
    long id = (long)p, n = 0;
    sigset_t bells;
    /* Only the first thread handles these: two threads that run the handler at once would lose counts. */
    sigemptyset(&bells);
    sigaddset(&bells, SIGALRM);
    sigaddset(&bells, SIGPROF);
    pthread_sigmask(SIG_BLOCK, &bells, 0);
    while (!enough) {
        shared[id].n++; n++;
        if (id == 0 && asked != answered) serve();
    }
    return (void *)(long)(shared[id].n == (unsigned long)n);
}

static void pause_for(long milliseconds) {
    struct timespec time = {milliseconds / 1000, milliseconds % 1000 * 1000000};
    /* A plain system call, because this runs in a child of vfork, too. */
    syscall(SYS_nanosleep, &time, 0);
}

/* Whether the page of this address is sharable. */
static int is_sharable(volatile void *at) {
    char line[512];
    int found = 0;
    unsigned long from, to;
    FILE *maps = fopen("/proc/self/maps", "r");
    while (fgets(line, sizeof line, maps))
        if (sscanf(line, "%lx-%lx", &from, &to) == 2 && from <= (unsigned long)at && (unsigned long)at < to)
            found = strstr(line, "sunder-memory") != 0;
    fclose(maps);
    return found;
}

static void wait_for(volatile void *at) {
    for (int i = 0; waits && !is_sharable(at); i++) {
        if (i == 12000) { printf("never sharable\n"); exit(9); }
        pause_for(5);
    }
}

static char *map(long bytes) {
    char *at = mmap(0, bytes, BOTH, ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) { perror("mmap"); exit(8); }
    return at;
}

/* A block whose bytes tell their address, with unmapped memory after it. */
static char *block(long bytes) {
    char *at = map(bytes + 2 * PAGE) + PAGE;
    munmap(at - PAGE, PAGE);
    munmap(at + bytes, PAGE);
    for (long i = 0; i < bytes; i++) at[i] = (char)(i % 251 + 1);
    return at;
}

static int is_whole(const char *at, long bytes) {
    for (long i = 0; i < bytes; i++)
        if (at[i] != (char)(i % 251 + 1)) return 0;
    return 1;
}

/* The child's exit status. */
static int ended(pid_t child) {
    int status = 0;
    if (child < 0) return -errno;
    if (waitpid(child, &status, 0) != child) return -errno;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1000 - status;
}

/* Address space runs out while memory is made sharable: the stack, at its greatest size, comes last. */
static void half(void) {
    struct rlimit stack, space;
    long pages = 0;
    volatile char here = 0;
    volatile long *heap = malloc(64);
    getrlimit(RLIMIT_STACK, &stack);
    stack.rlim_cur = 48 * MIB;
    if (setrlimit(RLIMIT_STACK, &stack)) { printf("no such stack\n"); exit(77); }
    FILE *file = fopen("/proc/self/statm", "r");
    if (fscanf(file, "%ld", &pages) != 1) exit(8);
    fclose(file);
    space.rlim_cur = space.rlim_max = pages * PAGE + 24 * MIB;
    setrlimit(RLIMIT_AS, &space);
    wait_for(&shared);
    printf("stack %d\n", is_sharable(&here));
    heap[0] = shared[9].n = 1;
    pid_t child = fork();
    if (!child) { heap[0] = shared[9].n = 99; _exit(3); }
    int status = ended(child);
    printf("child %d, here %ld %lu\n", status, heap[0], shared[9].n);
}

/* A file is mapped where a block was, and the mapping grows. */
static void file(void) {
    char name[] = "/tmp/sunder-spaces-XXXXXX", byte[2] = {0, 0};
    int fd = mkstemp(name);
    unlink(name);
    char *at = block(MIB);
    wait_for(at);
    munmap(at, MIB);
    if (ftruncate(fd, 16 * PAGE)) exit(8);
    char *there = mmap(at, 16 * PAGE, BOTH, MAP_SHARED | MAP_FIXED_NOREPLACE, fd, 0);
    printf("there %d\n", there == at);
    if (ftruncate(fd, 64 * PAGE)) exit(8);
    char *moved = mremap(there, 16 * PAGE, 64 * PAGE, MREMAP_MAYMOVE);
    if (moved == MAP_FAILED) { printf("mremap %d\n", errno); return; }
    moved[1] = 'a';
    moved[40 * PAGE] = 'b';
    if (pread(fd, byte, 1, 1) != 1 || pread(fd, byte + 1, 1, 40 * PAGE) != 1) exit(8);
    printf("in the file %.2s\n", byte);
    /* Memory that threads of two processes share. */
    char *common = mmap(at + 128 * PAGE, 2 * PAGE, BOTH, MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    common = mremap(common, 2 * PAGE, PAGE, 0);
    char *further = map(PAGE);
    common = mremap(common, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, further);
    if (common == MAP_FAILED) { printf("mremap %d\n", errno); return; }
    pid_t child = fork();
    if (!child) { common[7] = 'c'; _exit(0); }
    int status = ended(child);
    printf("child %d, in common %.1s\n", status, common + 7);
}

/* Lengths are rounded up to whole pages. */
static void lengths(void) {
    char *grows = block(2 * PAGE), *stays = block(2 * PAGE), *ends = block(PAGE), *shrinks = block(4 * PAGE);
    wait_for(grows); wait_for(stays); wait_for(ends); wait_for(shrinks);
    char *grown = mremap(grows, 5000, 20000, MREMAP_MAYMOVE);
    printf("grown %d\n", grown != MAP_FAILED && is_whole(grown, 2 * PAGE) && grown[19999] == 0);
    char *same = mremap(stays, 5000, 8000, 0);
    printf("same %d\n", same == stays && is_whole(stays, 2 * PAGE));
    char *none = mremap(ends, 3 * PAGE, 5 * PAGE, MREMAP_MAYMOVE);
    printf("beyond the end %d\n", none == MAP_FAILED && is_whole(ends, PAGE));
    char *less = mremap(shrinks, 4 * PAGE, PAGE + 1, MREMAP_MAYMOVE);
    printf("less %d\n", less == shrinks && is_whole(less, 2 * PAGE));
    none = mremap(shrinks, 2 * PAGE, 0, MREMAP_MAYMOVE);
    printf("nothing %d\n", none == MAP_FAILED && errno == EINVAL);
    none = mremap(shrinks, 2 * PAGE, -1L, MREMAP_MAYMOVE);
    printf("too much %d\n", none == MAP_FAILED && is_whole(less, 2 * PAGE));
}

/* One thread can't be stopped for a while, and another forks. */
static volatile int away;
static void *starts(void *p) {
    while (!enough) {
        away = 1;
        pid_t child = vfork();
        if (!child) { pause_for(400); _exit(0); }
        away = 0;
        ended(child);
        pause_for(100);
    }
    return p;
}
static void slow(void) {
    pthread_t thread;
    pthread_create(&thread, 0, starts, 0);
    wait_for(&shared);
    while (!away) pause_for(1);
    pause_for(20);
    pid_t child = fork();
    if (!child) _exit(shared[0].n != 0 ? 5 : 6);
    int status = ended(child);
    enough = 1;
    pthread_join(thread, 0);
    printf("child %d\n", status);
}

/* Memory that children must not inherit, and memory that is advised so later. */
static void wiped(void) {
    char *empty = block(PAGE), *none = block(PAGE), *late = block(2 * PAGE);
    unsigned char there;
    if (madvise(empty, PAGE, MADV_WIPEONFORK) || madvise(none, PAGE, MADV_DONTFORK)) { printf("no such advice\n"); exit(77); }
    wait_for(&shared); wait_for(late);
    for (int i = 0; i < 2; i++) {
        pid_t child = fork();
        if (!child) {
            int is_gone = mincore(none, PAGE, &there) && errno == ENOMEM;
            _exit((empty[0] == 0 && empty[PAGE - 1] == 0) + 2 * is_gone + 4 * is_whole(late, 2 * PAGE) + 8 * (late[0] == 0 && late[PAGE] != 0));
        }
        int status = ended(child);
        printf("child %d, here %d %d %d\n", status, is_whole(empty, PAGE), is_whole(none, PAGE), is_whole(late, 2 * PAGE));
        if (i == 0) printf("late %d\n", madvise(late, PAGE, MADV_WIPEONFORK));
    }
}

/* Memory that is advised so only after all memory is sharable. */
static void advised(void) {
    char *late = block(2 * PAGE);
    wait_for(late);
    printf("late %d\n", madvise(late, PAGE, MADV_WIPEONFORK));
    pid_t child = fork();
    if (!child) _exit(late[0] == 0 && late[PAGE] != 0);
    int status = ended(child);
    printf("child %d, here %d\n", status, is_whole(late, 2 * PAGE));
}

/* Discards memory when the process may open no more descriptors. */
static void full(void) {
    struct rlimit files = {3, 3};
    char *at = block(8 * PAGE);
    wait_for(at);
    setrlimit(RLIMIT_NOFILE, &files);
    printf("discarded %d\n", madvise(at + PAGE, 2 * PAGE, MADV_DONTNEED));
    int is_empty = 1;
    for (long i = PAGE; i < 3 * PAGE; i++) is_empty &= at[i] == 0;
    printf("empty %d, others %d\n", is_empty, is_whole(at, PAGE) && at[3 * PAGE] == (char)(3 * PAGE % 251 + 1));
}

/* How many processes have this one for their parent, ended ones too. */
static int children(void) {
    int found = 0, parent;
    struct dirent *entry;
    DIR *all = opendir("/proc");
    while ((entry = readdir(all))) {
        char path[300], line[512] = "", *behind;
        snprintf(path, sizeof path, "/proc/%s/stat", entry->d_name);
        FILE *file = fopen(path, "r");
        if (!file) continue;
        if (fgets(line, sizeof line, file) && (behind = strrchr(line, ')')))
            found += sscanf(behind, ") %*c %d", &parent) == 1 && parent == getpid();
        fclose(file);
    }
    closedir(all);
    return found;
}

/* Goes on as another user than the one who started it. */
static void dropped(void) {
    if (getuid()) { printf("no privileges to drop\n"); exit(77); }
    char *at = block(4 * PAGE), *hidden = block(PAGE);
    memset(at + 2 * PAGE, 0, PAGE);
    wait_for(at); wait_for(hidden);
    mprotect(hidden, PAGE, PROT_NONE);
    if (setgid(65534) || setuid(65534)) { printf("no such user\n"); exit(77); }
    pid_t child = fork();
    if (!child) {
        int is_right = is_whole(at, 2 * PAGE) && at[2 * PAGE] == 0 && at[3 * PAGE - 1] == 0 && at[3 * PAGE] != 0;
        at[0] = 99;
        _exit(is_right && !mprotect(hidden, PAGE, PROT_READ) && is_whole(hidden, PAGE) ? 6 : 7);
    }
    int status = ended(child);
    printf("child %d, here %d\n", status, is_whole(at, 2 * PAGE));
}

/* No thread is isolated after the fork. */
static void leaves(void) {
    wait_for(&shared);
    if (waits) pause_for(500);
    pid_t child = fork();
    if (!child) _exit(4);
    int status = ended(child);
    printf("child %d, children %d\n", status, children());
}

static void ask(char *at, int to_fill) {
    given = at;
    fills = to_fill;
    asked = asked + 1;
    while (answered != asked) pause_for(1);
}

/* Blocks that are mapped while the threads are isolated: written before, and never touched. */
static void late(void) {
    enum { TIMES = 20 };
    int read = 0, filled = 0;
    wait_for(&shared);
    for (int i = 0; i < TIMES; i++) {
        pause_for(15);
        char *at = map(MIB);
        memset(at, 1, MIB);
        ask(at, 0);
        read += sum == MIB;
    }
    for (int i = 0; i < TIMES; i++) {
        char *at = map(MIB + PAGE);
        mprotect(at + MIB, PAGE, PROT_NONE);
        pause_for(15);
        ask(at, 1);
        filled += is_whole(at, MIB);
    }
    printf("read %d, filled %d\n", read, filled);
}

static volatile long rings;
static char *bell;
static void ring(int signal) {
    (void)signal;
    rings = rings + 1;
    for (long i = 0; bell && i < 64; i++) ++*(volatile long *)(bell + i * MIB);
}

static void every(int which, int signal, long microseconds) {
    struct sigaction action = {.sa_handler = ring, .sa_flags = SA_RESTART};
    struct itimerval timer = {{0, microseconds}, {0, microseconds}};
    sigaction(signal, &action, 0);
    if (setitimer(which, &timer, 0)) exit(8);
}

/* A timer of CPU time is set while threads are isolated: workers' time does not count for it. */
static void timer(void) {
    wait_for(&shared);
    pause_for(50);
    every(ITIMER_PROF, SIGPROF, 10000);
    for (int i = 0; i < 12000 && rings < 20; i++) pause_for(5);
    printf("rings %d\n", rings >= 20);
    every(ITIMER_PROF, SIGPROF, 0);
}

/* Handlers write while the memory is made private for a fork. */
static void bells(void) {
    char *at = map(64 * MIB);
    memset(at, 0, 64 * MIB);
    wait_for(at);
    bell = at;
    every(ITIMER_REAL, SIGALRM, 500);
    pause_for(20);
    pid_t child = fork();
    if (!child) _exit(7);
    int status = ended(child), right = 1;
    every(ITIMER_REAL, SIGALRM, 0);
    for (long i = 0; i < 64; i++) right &= *(long *)(at + i * MIB) == rings;
    printf("child %d, rings %d, right %d\n", status, rings > 0, right);
}

int main(int c, char **v) {
    const struct { const char *name; void (*run)(void); } cases[] = {
        {"half", half}, {"file", file}, {"lengths", lengths}, {"slow", slow}, {"wiped", wiped}, {"advised", advised}, {"full", full},
        {"dropped", dropped}, {"leaves", leaves}, {"late", late},
        {"timer", timer}, {"bells", bells},
    };
    pthread_t threads[2];
    void *right[2];
    waits = c > 2;
    setvbuf(stdout, 0, _IOLBF, 0);
    for (long i = 0; i < 2; i++) pthread_create(&threads[i], 0, count, (void *)i);
    for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++)
        if (c > 1 && !strcmp(v[1], cases[i].name)) cases[i].run();
    enough = 1;
    for (int i = 0; i < 2; i++) pthread_join(threads[i], &right[i]);
    printf("right %ld %ld\n", (long)right[0], (long)right[1]);
    return 3;
}
