/* Runs one program and tells what it took. The kernel's peak of a process begins
 * with that of whoever forked it, so a small program is measured truly only when
 * something smaller starts it: this, linked statically.
 * Arguments: descriptor to tell on, program and its arguments. Tells: wait status,
 * wall ns, own CPU ns, CPU us with all that it waited for, peak KiB. */
#define _GNU_SOURCE
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <fcntl.h>
#include <time.h>

extern char **environ;

static long long ns(clockid_t clock)
{
    struct timespec t = {0, 0};
    clock_gettime(clock, &t);
    return t.tv_sec * 1000000000ll + t.tv_nsec;
}

static long long us(struct timeval t)
{
    return t.tv_sec * 1000000ll + t.tv_usec;
}

int main(int argc, char **argv)
{
    if (argc < 3)
        return 2;
    int tell = atoi(argv[1]);
    fcntl(tell, F_SETFD, FD_CLOEXEC);
    long long start = ns(CLOCK_MONOTONIC);
    pid_t pid;
    if (posix_spawnp(&pid, argv[2], NULL, NULL, argv + 2, environ) != 0)
        return 127;
    /* While it is a zombie its own clock can be read: without its children. */
    siginfo_t info;
    clockid_t clock;
    waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT);
    long long wall = ns(CLOCK_MONOTONIC) - start;
    long long own = clock_getcpuclockid(pid, &clock) == 0 ? ns(clock) : 0;
    int status = 0;
    struct rusage usage;
    if (wait4(pid, &status, 0, &usage) != pid)
        return 1;
    dprintf(tell, "%d %lld %lld %lld %ld\n", status, wall, own,
            us(usage.ru_utime) + us(usage.ru_stime), usage.ru_maxrss);
    return 0;
}
