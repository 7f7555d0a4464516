/* A program that gives up root's rights, falsely shares, and does one hostile thing meanwhile, which
 * its first argument names. It ends by itself after the milliseconds of its second argument, with
 * status 7. Its third argument is a folder in which it may write.
 *
 * names      names of threads, files and variables command a terminal and turn text
 * files      what it has mapped is replaced by a FIFO, a device and files of /proc, in turns
 * changes    a library that it executes changes, shrinks and grows
 * threads    threads are made and end as fast as they can
 * tracer     a child traces its threads
 * filter     a filter ends it for any call that it does not expect
 * scribble   it writes into all memory that it shares with anybody
 * descriptors  what lies behind its descriptors changes all the time */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define NAME "\033[31mred\033]0;title\007\n\342\200\256turned"

static volatile long hot[8] __asm__("\"hot\033[2Jred\"") __attribute__((aligned(64)));
static const char *kind, *folder;
static char *program;

static void *count(void *of) {
    if (strcmp(kind, "names") == 0) prctl(PR_SET_NAME, NAME);
    for (;;) hot[(long)of]++;
    return NULL;
}

static char *in_folder(const char *name) {
    char *path;
    if (asprintf(&path, "%s/%s", folder, name) < 0) _exit(1);
    return path;
}

/* A copy of the file at `from`. */
static void copy(const char *from, const char *to) {
    static char bytes[1 << 16];
    int in = open(from, O_RDONLY), out = open(to, O_CREAT | O_TRUNC | O_WRONLY, 0755);
    ssize_t got;
    while ((got = read(in, bytes, sizeof bytes)) > 0)
        if (write(out, bytes, (size_t)got) != got) _exit(1);
    close(in);
    close(out);
}

static void map_code(const char *path) {
    copy(program, path);
    int file = open(path, O_RDONLY);
    char *code = mmap(NULL, 1 << 14, PROT_READ | PROT_EXEC, MAP_PRIVATE, file, 0);
    if (code == MAP_FAILED) _exit(1);
    close(file);
}

static void names(void) {
    char *path = in_folder("lib" "\033[5m\342\200\256gnp.so\nsunder: all is well");
    map_code(path);
    prctl(PR_SET_NAME, NAME);
}

static void *files(void *unused) {
    static const char *const become[] = {"/proc/self/mem", "/proc/kmsg", "/dev/tty", "/dev/zero",
                                         "/proc/self/pagemap", "/etc/shadow"};
    char *path = in_folder("mapped.so"), *other = in_folder("other");
    for (unsigned i = 0;; i++) {
        unlink(other);
        if (i % 7 == 6) {
            if (mkfifo(other, 0666) != 0) _exit(1);
        } else if (symlink(become[i % 6], other) != 0) {
            _exit(1);
        }
        rename(other, path);
        usleep(500);
    }
    return unused;
}

static void *changes(void *unused) {
    char *path = in_folder("changing.so");
    int file = open(path, O_RDWR);
    uint32_t random = 1;
    static char garbage[512];
    for (unsigned i = 0;; i++) {
        for (size_t j = 0; j < sizeof garbage; j++) {
            random = random * 1664525 + 1013904223;
            garbage[j] = (char)(random >> 24);
        }
        if (i % 4 == 0 && ftruncate(file, random % 20000) != 0) _exit(1);
        if (i % 4 == 2 && ftruncate(file, 1L << 36) != 0) _exit(1);
        if (pwrite(file, garbage, sizeof garbage, random % 16384) < 0) _exit(1);
        usleep(300);
    }
    return unused;
}

static void *nothing(void *unused) { return unused; }

static void *threads(void *unused) {
    pthread_attr_t detached;
    pthread_attr_init(&detached);
    pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&detached, 1 << 16);
    for (;;) {
        pthread_t thread;
        if (pthread_create(&thread, &detached, nothing, NULL) != 0) usleep(1000);
    }
    return unused;
}

static void tracer(void) {
    pid_t parent = getpid();
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
    prctl(PR_SET_DUMPABLE, 1);
    if (fork() != 0) return;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    ptrace(PTRACE_SEIZE, parent, 0, 0);
    for (;;) {
        ptrace(PTRACE_INTERRUPT, parent, 0, 0);
        int status;
        /* A signal, which it never gets, may stop it before the interrupt does. Whoever counts that
         * as the interrupt's stop is one stop behind for ever, and the thread never goes on. */
        do {
            if (waitpid(parent, &status, __WALL) < 0) break;
            if (WIFEXITED(status) || WIFSIGNALED(status)) _exit(0);
            ptrace(PTRACE_CONT, parent, 0, 0);
        } while (status >> 16 != PTRACE_EVENT_STOP);
        usleep(1000);
    }
}

static void filter(void) {
    struct sock_filter steps[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit_group, 1, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clock_nanosleep, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_rt_sigreturn, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
    };
    struct sock_fprog all = {sizeof steps / sizeof *steps, steps};
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &all);
}

/* Writes into each shared mapping that can be written, the numbers that break most first. */
static void *scribble(void *unused) {
    static const uint64_t numbers[] = {UINT64_MAX, 0, 1, 0x7fffffffffffffff, 0x8000000000000000,
                                       0xffffffff, 0x7fffffff, 0x0101010101010101, 4096};
    uint32_t random = 7;
    for (;;) {
        FILE *maps = fopen("/proc/self/maps", "r");
        char line[4096], rights[5];
        unsigned long from, to;
        while (maps != NULL && fgets(line, sizeof line, maps) != NULL) {
            if (sscanf(line, "%lx-%lx %4s", &from, &to, rights) != 3) continue;
            if (rights[1] != 'w' || rights[3] != 's') continue;
            for (int i = 0; i < 4000; i++) {
                random = random * 1664525 + 1013904223;
                /* The beginnings have the numbers by which the rest is read. */
                unsigned long reach = i % 2 ? to - from : 8192;
                if (reach > to - from) reach = to - from;
                uint64_t *at = (uint64_t *)(from + random % (reach / 8) * 8);
                *at = numbers[(random >> 20) % 9];
            }
        }
        if (maps != NULL) fclose(maps);
        usleep(2000);
    }
    return unused;
}

static char stack[1 << 16] __attribute__((aligned(16)));

static int swap(void *path) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    int file = open(path, O_RDONLY);
    for (;;)
        for (int fd = 3; fd < 40; fd++)
            if (fd != file && fcntl(fd, F_GETFD) >= 0) dup2(file, fd);
    return 0;
}

static void descriptors(void) {
    clone(swap, stack + sizeof stack, CLONE_FILES | SIGCHLD, in_folder("of-root"));
}

static void begin(void *(*body)(void *)) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, body, NULL) != 0) _exit(1);
}

int main(int argc, char **argv) {
    if (argc < 4) return 2;
    kind = argv[1];
    folder = argv[3];
    program = argv[0];
    if (geteuid() == 0) {
        if (setresgid(65534, 65534, 65534) != 0 || setresuid(65534, 65534, 65534) != 0) return 3;
        prctl(PR_SET_DUMPABLE, 1);
    }
    if (chdir(folder) != 0) return 4;
    pthread_t thread;
    for (long i = 0; i < 3; i++)
        if (pthread_create(&thread, NULL, count, (void *)i) != 0) return 5;
    if (strcmp(kind, "names") == 0) names();
    if (strcmp(kind, "files") == 0) map_code(in_folder("mapped.so")), begin(files);
    if (strcmp(kind, "changes") == 0) map_code(in_folder("changing.so")), begin(changes);
    if (strcmp(kind, "threads") == 0) begin(threads), begin(threads);
    if (strcmp(kind, "tracer") == 0) tracer();
    if (strcmp(kind, "scribble") == 0) begin(scribble);
    if (strcmp(kind, "descriptors") == 0) descriptors();
    struct timespec end;
    clock_gettime(CLOCK_MONOTONIC, &end);
    long nanoseconds = end.tv_nsec + atol(argv[2]) % 1000 * 1000000;
    end.tv_sec += atol(argv[2]) / 1000 + nanoseconds / 1000000000;
    end.tv_nsec = nanoseconds % 1000000000;
    if (strcmp(kind, "filter") == 0) {
        /* Threads that begin make calls of their own. */
        while (hot[0] == 0 || hot[1] == 0 || hot[2] == 0) usleep(1000);
        filter();
    }
    while (syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, TIMER_ABSTIME, &end, NULL) != 0) {}
    syscall(SYS_exit_group, 7);
}
