/* A program that confines itself: from then on any call of the kernel that is not on its short list
 * ends it with the call's number and status 98. With "early" it does so before it starts threads and
 * allocates much, with "late" while its threads compute. */
#include "check.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#define ALLOW(call) \
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_##call, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)

static void refused(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)context;
    char text[32];
    int bytes = snprintf(text, sizeof text, "call %d\n", info->si_syscall);
    if (write(2, text, (size_t)bytes) < 0) _exit(97);
    _exit(98);
}

/* For all threads. */
static void confine(void) {
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        /* Threads, as the C library begins and ends them. */
        ALLOW(clone3), ALLOW(clone), ALLOW(set_robust_list), ALLOW(rseq), ALLOW(exit), ALLOW(futex),
        ALLOW(rt_sigprocmask), ALLOW(rt_sigaction), ALLOW(sched_yield),
        /* Memory, as allocators get it. */
        ALLOW(mmap), ALLOW(munmap), ALLOW(mremap), ALLOW(mprotect), ALLOW(madvise), ALLOW(brk),
        ALLOW(getrandom),
        /* Output and the end. */
        ALLOW(write), ALLOW(newfstatat), ALLOW(fstat), ALLOW(ioctl), ALLOW(exit_group),
        ALLOW(rt_sigreturn),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    unsigned flags = SECCOMP_FILTER_FLAG_TSYNC;
    CHECK(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &program) == 0);
}

static long scale;
static volatile int begun;

static void *work(void *argument) {
    long own = (long)argument;
    __atomic_fetch_add(&begun, 1, __ATOMIC_RELAXED);
    for (int i = 0; i < 20; i++) {
        heat(own, 1000000 * scale);
        /* Small blocks, a large one, and one that grows. */
        char *blocks[100];
        for (int k = 0; k < 100; k++) {
            blocks[k] = malloc(16 + (size_t)(k * 37 % 2000));
            CHECK(blocks[k] != NULL);
            blocks[k][0] = (char)k;
        }
        char *large = calloc(1, 300000), *grows = NULL;
        for (size_t bytes = 100; bytes < 50000; bytes *= 3) grows = realloc(grows, bytes);
        CHECK(large != NULL && grows != NULL && large[299999] == 0);
        for (int k = 0; k < 100; k++) {
            CHECK(blocks[k][0] == (char)k);
            free(blocks[k]);
        }
        free(large);
        free(grows);
    }
    return NULL;
}

int main(int argc, char **argv) {
    scale = argc > 1 ? atol(argv[1]) : 1;
    int late = argc > 2 && strcmp(argv[2], "late") == 0;
    struct sigaction action = {.sa_sigaction = refused, .sa_flags = SA_SIGINFO};
    CHECK(sigaction(SIGSYS, &action, NULL) == 0);
    if (!late) confine();
    pthread_t threads[THREADS];
    for (long i = 0; i < THREADS; i++) DO(pthread_create(&threads[i], NULL, work, (void *)i));
    if (late) {
        while (begun < THREADS) sched_yield();
        heat(THREADS, 30000000 * scale);
        confine();
    }
    for (int i = 0; i < THREADS; i++) DO(pthread_join(threads[i], NULL));
    /* And threads that begin when all are confined. */
    for (long i = 0; i < THREADS; i++) DO(pthread_create(&threads[i], NULL, work, (void *)i));
    for (int i = 0; i < THREADS; i++) DO(pthread_join(threads[i], NULL));
    for (int i = 0; i < THREADS; i++) printf("%ld\n", hot[i]);
    return 6;
}
