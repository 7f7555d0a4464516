/* Things that programs are free to do, instrumented or not; the argument
 * chooses one. Output and status are fixed by the text of this file. */
#define _GNU_SOURCE
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

static volatile long sums[2];

static void *sum(void *p)
{
    long id = (long)p;
    for (long i = 0; i < 3000000; i++)
        sums[id] += i & 1;
    return 0;
}

static void two_threads(void)
{
    pthread_t t[2];
    for (long i = 0; i < 2; i++)
        pthread_create(&t[i], 0, sum, (void *)i);
    for (int i = 0; i < 2; i++)
        pthread_join(t[i], 0);
}

static sigjmp_buf back;
static volatile sig_atomic_t segv, prof;

static void on_segv(int s)
{
    (void)s;
    segv++;
    siglongjmp(back, 1);
}

static void on_prof(int s)
{
    (void)s;
    prof++;
}

static void *late_worker(void *p)
{
    (void)p;
    two_threads();
    puts("worker done");
    fflush(stdout);
    exit(0);
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    if (!strcmp(what, "fork")) {
        two_threads();
        if (fork() == 0) {
            two_threads();
            free(malloc(100));
            puts("child 3");
            exit(3);
        }
        int status;
        wait(&status);
        two_threads();
        puts("parent 7");
        return WEXITSTATUS(status) == 3 ? 0 : 1;
    }
    if (!strcmp(what, "double-fork")) {
        int p[2];
        char c;
        if (pipe(p))
            return 1;
        if (fork() == 0) {
            if (fork() == 0) {
                two_threads();
                puts("grandchild");
                fflush(stdout);
                (void)!write(p[1], "x", 1);
                _exit(0);
            }
            _exit(0);
        }
        wait(0);
        (void)!read(p[0], &c, 1);
        puts("parent");
        return 0;
    }
    if (!strcmp(what, "exec")) {
        two_threads();
        execl("/bin/sh", "sh", "-c", "echo from sh; exit 9", (char *)0);
        return 1;
    }
    if (!strcmp(what, "close-all")) {
        for (int fd = 0; fd < 1024; fd++)
            close(fd);
        two_threads();
        return 4;
    }
    if (!strcmp(what, "clear-environment")) {
        clearenv();
        two_threads();
        int n = 0;
        for (char **e = environ; e && *e; e++)
            n++;
        printf("%d variables\n", n);
        return 0;
    }
    if (!strcmp(what, "own-handlers")) {
        signal(SIGSEGV, on_segv);
        signal(SIGPROF, on_prof);
        struct itimerval tick = {{0, 1000}, {0, 1000}};
        setitimer(ITIMER_PROF, &tick, 0);
        while (!prof)
            two_threads();
        memset(&tick, 0, sizeof tick);
        setitimer(ITIMER_PROF, &tick, 0);
        if (sigsetjmp(back, 1) == 0)
            *(volatile int *)8 = 1;
        printf("segv %d prof %s\n", (int)segv, prof ? "yes" : "no");
        return 0;
    }
    if (!strcmp(what, "killed")) {
        puts("half-way");
        fflush(stdout);
        two_threads();
        raise(SIGKILL);
    }
    if (!strcmp(what, "abort")) {
        two_threads();
        abort();
    }
    if (!strcmp(what, "no-threads")) {
        puts("done");
        return 0;
    }
    if (!strcmp(what, "main-exits-first")) {
        pthread_t t;
        pthread_create(&t, 0, late_worker, 0);
        pthread_exit(0);
    }
    fprintf(stderr, "unknown: %s\n", what);
    return 99;
}
