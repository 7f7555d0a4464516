/* What threads are promised, while two of them compute on neighbours of one page. The output must
 * not depend on which thread is isolated when: each case runs natively and under protect.
 * `until` computes until the process's memory shows that a thread was isolated. */
#define _GNU_SOURCE
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <errno.h>
#include <time.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <setjmp.h>
/* Two threads that compute on `shared` all the time, beside what each case does. */
struct slot { volatile unsigned long n, sum; };
struct slot shared[256] __attribute__((aligned(4096)));
static char pad[4096] __attribute__((aligned(4096)));
static volatile long other; /* in another page */
static long LOOPS = 30000000;
static void spin(int id, long loops) {
    for (long i = 0; i < loops; i++) { shared[id].n++; shared[id].sum += (unsigned long)i * 7; }
}
static int check(int id, long times, long loops) {
    unsigned long sum = (unsigned long)times * 7ul * ((unsigned long)loops * (loops - 1) / 2);
    int ok = shared[id].n == (unsigned long)(times * loops) && shared[id].sum == sum;
    if (!ok) printf("slot %d: %lu %lu instead of %lu %lu\n", id, shared[id].n, shared[id].sum, (unsigned long)(times * loops), sum);
    return ok;
}
static void *spinner(void *p) { spin((int)(long)p, LOOPS); return p; }
static long joined;
static void two(void *(*a)(void *), void *(*b)(void *)) {
    pthread_t t, u; void *r;
    pthread_create(&t, 0, a, (void *)0); pthread_create(&u, 0, b, (void *)1);
    pthread_join(t, &r); joined += (long)r; pthread_join(u, &r); joined += (long)r;
}
static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER; static pthread_cond_t cv = PTHREAD_COND_INITIALIZER;
static pthread_barrier_t bar; static pthread_rwlock_t rw = PTHREAD_RWLOCK_INITIALIZER; static sem_t sem; static pthread_spinlock_t sp;
static long counter[4]; static int turn;
static void *locks(void *p) {
    int id = (int)(long)p;
    for (int r = 0; r < 300; r++) {
        spin(id, 100000);
        pthread_mutex_lock(&m); counter[0]++; pthread_mutex_unlock(&m);
        pthread_rwlock_wrlock(&rw); counter[1]++; pthread_rwlock_unlock(&rw);
        pthread_spin_lock(&sp); counter[2]++; pthread_spin_unlock(&sp);
        sem_wait(&sem); counter[3]++; sem_post(&sem);
        pthread_mutex_lock(&m);
        while (turn != id) pthread_cond_wait(&cv, &m);
        turn = !id; pthread_cond_broadcast(&cv);
        pthread_mutex_unlock(&m);
        pthread_barrier_wait(&bar);
    }
    return p;
}
/* Data of one page, passed on under a lock: each thread adds to the other's slot too. */
static long handed[8] __attribute__((aligned(64)));
static void *hand(void *p) {
    int id = (int)(long)p;
    for (int r = 0; r < 200; r++) {
        spin(id, 100000);
        pthread_mutex_lock(&m); shared[2].n++; shared[3].sum += shared[2].n; pthread_mutex_unlock(&m);
    }
    return p;
}
static __thread long tls = 5; static pthread_key_t key; static volatile int destroyed;
static void destroy(void *v) { __atomic_fetch_add(&destroyed, (int)(long)v, __ATOMIC_SEQ_CST); }
static void cleanup(void *v) { other += (long)v; }
static void *exits(void *p) { pthread_setspecific(key, (void *)7); tls += (long)p; spin((int)(long)p, LOOPS); if (tls != 5 + (long)p) printf("tls\n"); pthread_exit((void *)(tls + 40)); }
static void *canceled(void *p) { pthread_cleanup_push(cleanup, (void *)100); spin(1, LOOPS); for (;;) { pthread_testcancel(); spin(2, 1000); } pthread_cleanup_pop(0); return 0; }
static volatile int begun; /* the thread is ready to be interrupted or cancelled */
static void until_begun(void) { while (!begun) usleep(1000); }
static void *async(void *p) { int o; pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &o); pthread_cleanup_push(cleanup, (void *)1000); begun = 1; for (;;) shared[4].n++; pthread_cleanup_pop(0); return 0; }
static volatile sig_atomic_t got; static volatile pid_t got_by;
static void on(int s) { got += 1; got_by = (pid_t)syscall(SYS_gettid); }
static pid_t tid1;
static void *signaled(void *p) { tid1 = (pid_t)syscall(SYS_gettid); while (!got) shared[1].n++; printf("in thread %d\n", got_by == tid1); return p; }
static sigjmp_buf jb; static void onj(int s) { siglongjmp(jb, 1); }
static void *jumps(void *p) { if (!sigsetjmp(jb, 1)) for (begun = 1;;) shared[1].n++; return (void *)9; }
static void *sleeper(void *p) {
    struct timespec t = {0, 400000000}, rem = {0, 0}; struct pollfd pf = {-1, 0, 0};
    int r = 0; other = 0;
    if (nanosleep(&t, &rem)) printf("nanosleep %d\n", errno);
    if ((r = poll(&pf, 1, 200)) != 0) printf("poll %d\n", errno);
    int e = epoll_create1(0); struct epoll_event ev; if (epoll_wait(e, &ev, 1, 200) != 0) printf("epoll %d\n", errno);
    struct timeval tv = {0, 200000}; if (select(0, 0, 0, 0, &tv) != 0) printf("select %d\n", errno);
    sem_t s; sem_init(&s, 0, 0); clock_gettime(CLOCK_REALTIME, &t); t.tv_nsec += 200000000; if (t.tv_nsec > 999999999) { t.tv_sec++; t.tv_nsec -= 1000000000; }
    if (sem_timedwait(&s, &t) == 0 || errno != ETIMEDOUT) printf("sem %d\n", errno);
    sigset_t set; sigemptyset(&set); sigaddset(&set, SIGUSR2); struct timespec w = {0, 200000000}; if (sigtimedwait(&set, 0, &w) >= 0 || errno != EAGAIN) printf("sigtimedwait %d\n", errno);
    int fd[2]; pipe(fd); char c;
    if (!fork()) { usleep(200000); write(fd[1], "x", 1); _exit(0); }
    if (read(fd[0], &c, 1) != 1) printf("read %d\n", errno);
    int st; wait(&st);
    printf("slept\n"); return 0;
}
static void *mallocs(void *p) {
    int id = (int)(long)p; unsigned long x = 0;
    for (int r = 0; r < 30; r++) {
        char *b[50]; for (int i = 0; i < 50; i++) { size_t n = 100 + (size_t)i * 5000; b[i] = malloc(n); memset(b[i], i, n); }
        for (int i = 0; i < 50; i++) { b[i] = realloc(b[i], 300000); x += (unsigned char)b[i][99]; free(b[i]); }
        spin(id, 100000);
    }
    printf("mallocs %lu\n", x); return p;
}
static void *forks(void *p) {
    for (int r = 0; r < 3; r++) { spin(0, 20000000);
        shared[5].n = 17;
        pid_t c = fork();
        if (!c) { shared[5].n = 99; other = 77; _exit(shared[0].n == (unsigned long)(r + 1) * 20000000 ? 42 : 1); }
        int st; if (waitpid(c, &st, 0) != c) printf("waitpid\n"); printf("child %d parent %lu\n", WEXITSTATUS(st), shared[5].n); }
    return p;
}
static void *execs(void *p) { spin(1, LOOPS); execlp("echo", "echo", "executed", (char *)0); return p; }
static void *crashes(void *p) { spin(1, LOOPS); *(volatile int *)8 = 1; return p; }
static void *aborts(void *p) { spin(1, LOOPS); abort(); }
static void *exits_all(void *p) { spin(1, LOOPS); printf("exit from a thread\n"); exit(11); }
static void *spawns(void *p) { for (int i = 0; i < 3; i++) { spin(1, LOOPS / 3); fflush(stdout); if (system("echo spawned") != 0) printf("system\n"); errno = 0; if (wait(0) != -1 || errno != ECHILD) printf("wait sees somebody\n"); } return p; }
static void onsegv(int s, siginfo_t *i, void *u) { mprotect((void *)((unsigned long)i->si_addr & ~4095ul), 4096, PROT_READ | PROT_WRITE); got++; }
static void *faults(void *p) { char *q = mmap(0, 40960, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); for (int i = 0; i < 10; i++) { spin(1, 3000000); q[i * 4096] = 1; } printf("faults %d\n", got); return p; }
static void *prints(void *p) { int id = (int)(long)p; for (int i = 0; i < 50; i++) { spin(id, 500000); flockfile(stdout); if (id) printf("b"); else printf("b"); funlockfile(stdout); } return p; }
static void *fpu(void *p) { double x = 1; volatile long double y = 1; int id = (int)(long)p; for (long i = 1; i < 20000000; i++) { shared[id].n++; x = x * 1.0000001 + 0.5 / (double)i; } printf("%.17g\n", x); return p; }
static void *child_threads(void *p) { for (int i = 0; i < 20; i++) { spin(0, 1000000); pthread_t t; void *r; pthread_create(&t, 0, spinner, (void *)(long)(6 + i % 4)); pthread_join(t, &r); } return p; }
static volatile int enough;
static void *until(void *p) { long id = (long)p, n = 0; while (!enough) { shared[id].n++; n++; } printf("%d\n", shared[id].n == (unsigned long)n); return 0; }
static void watch(void) {
    char line[512]; int found = 0;
    for (int i = 0; i < 2000 && !found; i++) {
        FILE *f = fopen("/proc/self/maps", "r");
        while (fgets(line, sizeof line, f)) found |= strstr(line, "sunder-memory") != 0;
        fclose(f); usleep(5000);
    }
    usleep(1000000); enough = 1; /* a second: isolated threads commit even if others take most of the CPUs */
}
static volatile int paused; /* until it is set, signals are sent again: one may arrive before the pause */
static void *pauser(void *p) { pause(); paused = 1; printf("paused %d\n", got > 0); return 0; }
int main(int c, char **v) {
    const char *w = v[1]; setvbuf(stdout, 0, _IOLBF, 0); sem_init(&sem, 0, 1); pthread_spin_init(&sp, 0); pthread_barrier_init(&bar, 0, 2); pthread_key_create(&key, destroy);
    if (c > 2) LOOPS = atol(v[2]);
    int ok = 1;
    if (!strcmp(w, "plain")) { two(spinner, spinner); ok = check(0, 1, LOOPS) & check(1, 1, LOOPS); }
    else if (!strcmp(w, "locks")) { two(locks, locks); for (int i = 0; i < 4; i++) ok &= counter[i] == 600; ok = ok && check(0, 300, 100000) && check(1, 300, 100000); }
    else if (!strcmp(w, "hand")) { two(hand, hand); ok = shared[2].n == 400 && shared[3].sum == 400ul * 401 / 2; }
    else if (!strcmp(w, "exits")) { two(exits, exits); printf("destroyed %d\n", destroyed); ok = check(0, 1, LOOPS) & check(1, 1, LOOPS); }
    else if (!strcmp(w, "cancel")) { pthread_t t, u; void *r; pthread_create(&t, 0, spinner, 0); pthread_create(&u, 0, canceled, 0); usleep(300000); pthread_cancel(u); pthread_join(u, &r); printf("canceled %d %ld\n", r == PTHREAD_CANCELED, other); pthread_join(t, &r); ok = check(0, 1, LOOPS) & check(1, 1, LOOPS); }
    else if (!strcmp(w, "async")) { pthread_t t, u; void *r; pthread_create(&t, 0, spinner, 0); pthread_create(&u, 0, async, 0); until_begun(); usleep(300000); pthread_cancel(u); pthread_join(u, &r); printf("canceled %d %ld\n", r == PTHREAD_CANCELED, other); pthread_join(t, &r); ok = check(0, 1, LOOPS); }
    else if (!strcmp(w, "signal")) { signal(SIGUSR1, on); pthread_t t, u; void *r; pthread_create(&t, 0, spinner, 0); pthread_create(&u, 0, signaled, (void *)1); usleep(300000); pthread_kill(u, SIGUSR1); pthread_join(u, &r); pthread_join(t, &r); ok = check(0, 1, LOOPS); }
    else if (!strcmp(w, "process-signal")) { signal(SIGUSR1, on); sigset_t s; sigemptyset(&s); sigaddset(&s, SIGUSR1); pthread_t t, u; void *r; pthread_sigmask(SIG_BLOCK, &s, 0); pthread_create(&t, 0, spinner, 0); pthread_sigmask(SIG_UNBLOCK, &s, 0); pthread_create(&u, 0, signaled, (void *)1); pthread_sigmask(SIG_BLOCK, &s, 0); usleep(300000); kill(getpid(), SIGUSR1); pthread_join(u, &r); pthread_join(t, &r); ok = check(0, 1, LOOPS); }
    else if (!strcmp(w, "jump")) { signal(SIGUSR1, onj); pthread_t t, u; void *r; pthread_create(&t, 0, spinner, 0); pthread_create(&u, 0, jumps, 0); until_begun(); usleep(300000); pthread_kill(u, SIGUSR1); pthread_join(u, &r); printf("%ld\n", (long)r); pthread_join(t, &r); ok = check(0, 1, LOOPS); }
    else if (!strcmp(w, "sleepers")) { pthread_t t; pthread_create(&t, 0, sleeper, 0); two(spinner, spinner); pthread_join(t, 0); ok = check(0, 1, LOOPS) & check(1, 1, LOOPS); }
    else if (!strcmp(w, "pause")) { signal(SIGUSR1, on); pthread_t t; pthread_create(&t, 0, pauser, 0); two(spinner, spinner); do { pthread_kill(t, SIGUSR1); usleep(20000); } while (!paused); pthread_join(t, 0); }
    else if (!strcmp(w, "malloc")) { two(mallocs, mallocs); ok = check(0, 30, 100000) & check(1, 30, 100000); }
    else if (!strcmp(w, "fork")) { two(forks, spinner); ok = check(0, 3, 20000000) & check(1, 1, LOOPS); }
    else if (!strcmp(w, "exec")) two(spinner, execs);
    else if (!strcmp(w, "crash")) two(spinner, crashes);
    else if (!strcmp(w, "abort")) two(spinner, aborts);
    else if (!strcmp(w, "exit")) two(spinner, exits_all);
    else if (!strcmp(w, "spawn")) { two(spinner, spawns); ok = check(0, 1, LOOPS) & check(1, 3, LOOPS / 3) ; }
    else if (!strcmp(w, "faults")) { struct sigaction a; memset(&a, 0, sizeof a); a.sa_sigaction = onsegv; a.sa_flags = SA_SIGINFO; sigaction(SIGSEGV, &a, 0); two(spinner, faults); ok = check(0, 1, LOOPS) & check(1, 10, 3000000); }
    else if (!strcmp(w, "prints")) { two(prints, prints); printf("\n"); ok = check(0, 50, 500000) & check(1, 50, 500000); }
    else if (!strcmp(w, "fpu")) two(fpu, fpu);
    else if (!strcmp(w, "threads")) { two(child_threads, spinner); }
    else if (!strcmp(w, "until")) { pthread_t t, u; pthread_create(&t, 0, until, (void *)0); pthread_create(&u, 0, until, (void *)1); watch(); pthread_join(t, 0); pthread_join(u, 0); }
    else if (!strcmp(w, "main-exit")) { pthread_t t; pthread_create(&t, 0, spinner, (void *)1); pthread_create(&t, 0, spinner, (void *)0); pthread_exit(0); }
    else return 2;
    printf("joined %ld\n", joined); printf(ok ? "right\n" : "wrong\n");
    return ok ? 5 : 1;
}
