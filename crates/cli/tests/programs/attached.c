/* Counts in threads, falsely shared, until it reads a byte from standard input; then says whether
 * all counts are right. With "calls" it meanwhile does things by which it could notice a repair:
 * signals, faults of its own, children, system calls with pointers to data that its threads write;
 * as many rounds as the next argument says, if there is one, and then it ends. With "no-code" and
 * "no-room" no code can be put into it. With "apart" each thread has a page of its own. With
 * "confines" and "workers-confine" a SIGUSR1 makes it filter its system calls: from then on the
 * program, or its counting threads alone, may not change actions of signals. With YIELDS defined
 * its own code makes system calls without pointers; with RESTARTS it has the section of programs
 * whose threads use data of their CPU (rseq). */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static struct {
    volatile long count[2];
    char text[512];
    sigset_t set, kept;
    struct sigaction action;
    struct sockaddr_un address;
    socklen_t length;
    siginfo_t info;
    int status;
    char rest[1024];
} __attribute__((aligned(4096))) shared;

static volatile long alone[2][512] __attribute__((aligned(4096)));
static int apart;

#ifdef RESTARTS
static const unsigned long sequence[4] __attribute__((section("__rseq_cs"), used, aligned(32)));
#endif

static volatile int stop;
/* 1: the counting threads are to confine themselves; more: so many have. */
static volatile int confining;
static long wanted[2];
static int wrong;
/* Rounds of "calls", and a pipe for them. */
static int round, ends[2];

static sigjmp_buf back;
static volatile sig_atomic_t faults, signals;

#define CHECK(what) do { if (!(what)) { wrong++; dprintf(1, "wrong: %s (errno %d)\n", #what, errno); } } while (0)

static void on_fault(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)context;
    faults += info->si_addr == (void *)16;
    siglongjmp(back, 1);
}

/* The interrupted code is the program's or a library's, never a copy. */
static void on_signal(int signal, siginfo_t *info, void *context) {
    (void)info;
    signals += signal == SIGUSR1;
    shared.text[500] = (char)signal;
    unsigned long ip = ((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP];
    if (ip < 0x1000) wrong++;
}

static void on_simple(int signal) { signals += signal == SIGUSR2; }

/* From now on rt_sigaction kills the program, if this thread calls it or, with
 * SECCOMP_FILTER_FLAG_TSYNC in `flags`, if any thread does. */
static void confine(unsigned flags) {
    struct sock_filter instructions[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_rt_sigaction, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = {sizeof instructions / sizeof *instructions, instructions};
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    CHECK(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &filter) == 0);
}

static void *work(void *argument) {
    long which = (long)argument;
    volatile long own[8] = {0};
    volatile long *count = apart ? alone[which] : &shared.count[which];
    long n = 0;
    while (!stop) {
        (*count)++;
        own[n % 8] = n;
        n++;
#ifdef YIELDS
        long done = SYS_sched_yield;
        if (n % 4096 == 0) __asm__ volatile("syscall" : "+a"(done) : : "rcx", "r11", "memory");
#endif
        if (confining == 1 + which) {
            confine(0);
            confining++;
        }
    }
    wanted[which] = n;
    return NULL;
}

/* Writes only a byte of its own. Adding 0 to another thread's count would undo what that thread has
 * counted meanwhile. */
static void *short_life(void *argument) {
    shared.text[60]++;
    return argument;
}

static void children(void) {
    pid_t child = fork();
    if (child == 0) {
        struct sigaction seen;
        sigaction(SIGSEGV, NULL, &seen);
        int good = seen.sa_sigaction == on_fault;
        if (sigsetjmp(back, 1) == 0) *(volatile int *)16 = 1;
        shared.text[40] = 1;
        _exit(good && faults == round + 2 ? 5 : 6);
    }
    int status = 0;
    CHECK(waitpid(child, &shared.status, 0) == child && WEXITSTATUS(shared.status) == 5);
    char *arguments[] = {"true", NULL};
    CHECK(posix_spawnp(&child, "true", NULL, NULL, arguments, environ) == 0);
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(system("exit 3") >> 8 == 3);
    child = vfork();
    if (child == 0) _exit(4);
    CHECK(waitpid(child, &status, 0) == child && WEXITSTATUS(status) == 4);
}

static void masks(void) {
    sigset_t old, now;
    sigfillset(&now);
    CHECK(pthread_sigmask(SIG_BLOCK, round % 2 ? &now : &shared.set, &shared.kept) == 0);
    CHECK(sigismember(&shared.kept, SIGUSR1) == 0);
    old = shared.kept;
    pthread_kill(pthread_self(), SIGUSR1);
    sig_atomic_t before = signals;
    shared.text[0]++;
    CHECK(pthread_sigmask(SIG_SETMASK, NULL, &now) == 0 && sigismember(&now, SIGUSR1) == 1);
    sigfillset(&now);
    sigdelset(&now, SIGUSR1);
    sigsuspend(&now);
    CHECK(signals == before + 1);
    CHECK(pthread_sigmask(SIG_SETMASK, &old, NULL) == 0);
}

/* A signal is delivered once. */
static void waited(void) {
    sigset_t one, old;
    struct timespec none = {0, 0};
    sigemptyset(&one);
    sigaddset(&one, SIGUSR2);
    CHECK(pthread_sigmask(SIG_BLOCK, &one, &old) == 0);
    pthread_kill(pthread_self(), SIGUSR2);
    CHECK(sigtimedwait(&one, &shared.info, &none) == SIGUSR2);
    CHECK(shared.info.si_signo == SIGUSR2);
    CHECK(pthread_sigmask(SIG_SETMASK, &old, NULL) == 0);
}

/* A connection is accepted once. */
static void connections(void) {
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    socklen_t length = sizeof(sa_family_t);
    int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
    CHECK(bind(listener, (struct sockaddr *)&name, length) == 0 && listen(listener, 1) == 0);
    length = sizeof name;
    CHECK(getsockname(listener, (struct sockaddr *)&name, &length) == 0);
    int caller = socket(AF_UNIX, SOCK_STREAM, 0);
    CHECK(connect(caller, (struct sockaddr *)&name, length) == 0);
    shared.length = sizeof shared.address;
    int called = accept(listener, (struct sockaddr *)&shared.address, &shared.length);
    CHECK(called >= 0 && shared.length >= sizeof(sa_family_t));
    close(called), close(caller), close(listener);
}

/* A message is received once. */
static void messages(void) {
    int pair[2];
    char byte = 0;
    CHECK(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0, pair) == 0);
    CHECK(send(pair[1], "x", 1, 0) == 1);
    shared.length = sizeof shared.address;
    CHECK(recvfrom(pair[0], &byte, 1, 0, (struct sockaddr *)&shared.address, &shared.length) == 1);
    CHECK(byte == 'x');
    close(pair[0]), close(pair[1]);
}

/* The access rights stay as they are; key 0 is the one that all memory has. */
static void keys(void) {
    pkey_mprotect(&shared, sizeof shared, PROT_READ | PROT_WRITE, 0);
}

static void actions(void) {
    struct sigaction new = {.sa_handler = on_simple}, old;
    CHECK(sigaction(SIGUSR2, &new, &shared.action) == 0);
    CHECK(shared.action.sa_handler == SIG_DFL);
    CHECK(raise(SIGUSR2) == 0);
    shared.action.sa_handler = SIG_DFL;
    CHECK(sigaction(SIGUSR2, &shared.action, &old) == 0);
    CHECK(old.sa_handler == on_simple && !(old.sa_flags & SA_SIGINFO));
    CHECK(sigaction(SIGSEGV, NULL, &old) == 0 && old.sa_sigaction == on_fault);
    CHECK(sigaction(SIGUSR1, NULL, &old) == 0 && old.sa_sigaction == on_signal);
}

static void transfers(void) {
    char text[64];
    snprintf(text, sizeof text, "round %d", round);
    CHECK(write(ends[1], text, sizeof text) == sizeof text);
    CHECK(read(ends[0], shared.text + 100, sizeof text) == sizeof text);
    CHECK(strcmp(shared.text + 100, text) == 0);
    struct iovec parts[2] = {{text, 10}, {shared.text + 100, 54}};
    CHECK(writev(ends[1], parts, 2) == 64);
    CHECK(read(ends[0], text, sizeof text) == sizeof text);
    /* From two pages, of which the first may be moved. */
    CHECK(write(ends[1], &shared, sizeof shared.text + 16) == sizeof shared.text + 16);
    char big[1024];
    CHECK(read(ends[0], big, sizeof big) == sizeof shared.text + 16);
}

static void disturb(long rounds) {
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO};
    sigfillset(&action.sa_mask);
    sigaction(SIGSEGV, &action, NULL);
    action.sa_sigaction = on_signal;
    sigaction(SIGUSR1, &action, NULL);
    /* Each of them may be the first that accesses moved bytes, which then go back. */
    static void (*const all[])(void) = {transfers, masks, actions, connections, messages, waited, keys};
    const int count = sizeof all / sizeof *all;
    sigfillset(&shared.set);
    CHECK(pipe(ends) == 0);
    printf("ready\n");
    fflush(stdout);
    struct pollfd input = {.fd = 0, .events = POLLIN};
    for (; rounds ? round < rounds : poll(&input, 1, 1) == 0; round++) {
        if (rounds) poll(NULL, 0, 1);
        if (sigsetjmp(back, 1) == 0) *(volatile int *)16 = 1;
        CHECK(faults == round + 1);
        for (int i = 0; i < count; i++) all[(round + i) % count]();
        pthread_t thread;
        void *result = NULL;
        CHECK(pthread_create(&thread, NULL, short_life, &input) == 0);
        CHECK(pthread_join(thread, &result) == 0 && result == &input);
        char *pages = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK(pages != MAP_FAILED);
        pages[5000] = 1;
        CHECK(munmap(pages, 1 << 20) == 0);
        if (round % 8 == 7) children();
    }
}

/* From now on no memory can become executable. */
static void allow_no_code(void) {
    enum { SET_MDWE = 65, REFUSE_EXEC_GAIN = 1 };
    if (prctl(SET_MDWE, REFUSE_EXEC_GAIN, 0, 0, 0) != 0) printf("not ");
}

/* Maps all addresses that jumps from the C library reach. */
static void leave_no_room(void) {
    const unsigned long step = 1 << 20, reach = 2200UL << 20;
    unsigned long library = (unsigned long)&printf & ~(step - 1);
    for (unsigned long at = library - reach; at < library + reach; at += step)
        mmap((void *)at, step, PROT_NONE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
}

int main(int count, char **arguments) {
    pthread_t threads[2];
    /* Threads of servers block all signals. */
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    const char *what = count > 1 ? arguments[1] : "";
    apart = strcmp(what, "apart") == 0;
    for (long i = 0; i < 2; i++) pthread_create(&threads[i], NULL, work, (void *)i);
    if (strstr(what, "confine")) sigaddset(&old, SIGUSR1);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    char byte;
    long rounds = 0;
    if (strcmp(what, "calls") == 0) {
        rounds = count > 2 ? atol(arguments[2]) : 0;
        disturb(rounds);
    } else {
        if (strcmp(what, "no-code") == 0) allow_no_code();
        if (strcmp(what, "no-room") == 0) leave_no_room();
        printf("ready\n");
        fflush(stdout);
    }
    if (strcmp(what, "confines") == 0 || strcmp(what, "workers-confine") == 0) {
        sigset_t set;
        int signal;
        sigemptyset(&set);
        sigaddset(&set, SIGUSR1);
        CHECK(sigwait(&set, &signal) == 0);
        if (*what == 'c') confine(SECCOMP_FILTER_FLAG_TSYNC);
        else confining = 1;
        while (*what == 'w' && confining < 3) sched_yield();
        printf("confined\n");
        fflush(stdout);
    }
    if (!rounds) CHECK(read(0, &byte, 1) == 1);
    stop = 1;
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < 2; i++) CHECK((apart ? alone[i][0] : shared.count[i]) == wanted[i]);
    printf("wrong %d\n", wrong);
    return wrong != 0;
}
