/* Threads, more than there are CPUs, count in pairs that share lines falsely. After a while the
 * program filters its system calls; any call that it does not need to end kills it. The threads
 * count on, and one reads through a null pointer now and then, which a handler skips. With any
 * argument the program only asks what filters the kernel has. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

enum { THREADS = 6, FAULTS = 50 };

static volatile long counts[THREADS][1] __attribute__((aligned(4096)));
static volatile int stop;
static long wanted[THREADS];
static volatile int faults;

static void on_fault(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)info;
    /* The read that faults, `mov (%rax), %al`, is 2 bytes long. */
    ((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP] += 2;
    faults++;
}

static void *work(void *argument) {
    long which = (long)argument, n = 0;
    volatile long own[8] = {0};
    while (!stop) {
        counts[which][0]++;
        own[n % 8] = n;
        n++;
    }
    wanted[which] = n;
    return NULL;
}

static long now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000 + time.tv_nsec / 1000000;
}

#define ALLOW(call) \
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_##call, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)

static int confine(void) {
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        ALLOW(write), ALLOW(writev), ALLOW(futex), ALLOW(exit), ALLOW(exit_group), ALLOW(munmap),
        ALLOW(madvise), ALLOW(rt_sigreturn), ALLOW(rt_sigprocmask), ALLOW(clock_gettime),
        ALLOW(restart_syscall), ALLOW(fstat), ALLOW(newfstatat), ALLOW(mmap), ALLOW(brk),
        ALLOW(rseq), ALLOW(set_robust_list), ALLOW(mprotect),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
    };
    struct sock_fprog program = {.len = sizeof filter / sizeof *filter, .filter = filter};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return -1;
    return (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program);
}

int main(int argc, char **argv) {
    (void)argv;
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO};
    sigaction(SIGSEGV, &action, NULL);
    printf("begins\n");
    fflush(stdout);
    pthread_t threads[THREADS];
    for (long i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, work, (void *)i);
    for (long begin = now(); now() - begin < 1200;)
        for (volatile int i = 0; i < 100000; i++) {}
    unsigned asked = SECCOMP_RET_KILL_PROCESS;
    int confined = argc > 1 ? syscall(SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0, &asked) == 0
                            : confine() == 0;
    confined = confined || errno == ENOSYS || errno == EINVAL;
    for (long begin = now(), n = 0; now() - begin < 300 || n < FAULTS; n++) {
        for (volatile int i = 0; i < 100000; i++) {}
        if (n < FAULTS) __asm__ volatile("xor %%eax, %%eax\n\tmovb (%%rax), %%al" ::: "rax");
    }
    stop = 1;
    int right = confined && faults == FAULTS;
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        right &= counts[i][0] == wanted[i];
    }
    printf(right ? "right\n" : "wrong\n");
    return right ? 5 : 1;
}
