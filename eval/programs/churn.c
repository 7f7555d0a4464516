/* A machine on which much begins and ends, for a watch beside it.
 * starts COUNT PROGRAM  starts PROGRAM so often, in as many processes at a time as there are CPUs.
 * processes COUNT       so many sleeping processes at once, until standard input ends.
 * busy COUNT            so many processes that work now and then, as servers with few users do: in each, two
 *                       threads compute for a ten-thousandth of a second fifty times a second.
 * threads COUNT         a process with so many sleeping threads, of which two more write to neighbouring
 *                       words all the time, until standard input ends.
 * Each tells on standard output how many there were; all but the first as soon as they are there. */
#define _GNU_SOURCE
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

/* Starts the program `count` times, one after another; how often that worked. */
static long start(long count, char *program)
{
    char *arguments[] = {program, NULL};
    long done = 0;
    while (done < count) {
        pid_t pid;
        if (posix_spawn(&pid, program, NULL, NULL, arguments, environ) != 0)
            break;
        if (waitpid(pid, NULL, 0) != pid)
            break;
        done++;
    }
    return done;
}

static long starts(long count, char *program)
{
    long cpus = sysconf(_SC_NPROCESSORS_ONLN), done = 0;
    int told[2];
    if (pipe(told) != 0)
        return 0;
    for (long i = 0; i < cpus; i++) {
        if (fork() == 0) {
            long own = start(count / cpus + (i < count % cpus), program);
            _exit(write(told[1], &own, sizeof own) != sizeof own);
        }
    }
    close(told[1]);
    for (long own; read(told[0], &own, sizeof own) == sizeof own;)
        done += own;
    while (wait(NULL) > 0)
        ;
    return done;
}

static void wait_for_the_end(void)
{
    char byte;
    fflush(stdout);
    while (read(0, &byte, 1) > 0)
        ;
}

static void *works_now_and_then(void *nothing)
{
    struct timespec pause = {.tv_nsec = 20000000};
    for (;;) {
        struct timespec begun, now;
        clock_gettime(CLOCK_MONOTONIC, &begun);
        do
            clock_gettime(CLOCK_MONOTONIC, &now);
        while ((now.tv_sec - begun.tv_sec) * 1000000000 + now.tv_nsec - begun.tv_nsec < 100000);
        nanosleep(&pause, NULL);
    }
    return nothing;
}

static void work(void)
{
    pthread_t thread;
    pthread_create(&thread, NULL, works_now_and_then, NULL);
    works_now_and_then(NULL);
}

static void sleep_for_ever(void)
{
    for (;;)
        pause();
}

static void processes(long count, void (*act)(void))
{
    long there = 0;
    pid_t *all = calloc(count, sizeof *all);
    while (all && there < count) {
        pid_t pid = fork();
        if (pid == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            act();
        }
        if (pid < 0)
            break;
        all[there++] = pid;
    }
    printf("%ld\n", there);
    wait_for_the_end();
    for (long i = 0; i < there; i++)
        kill(all[i], SIGKILL);
    while (wait(NULL) > 0)
        ;
}

static volatile long words[2];

static void *sleeps(void *nothing)
{
    for (;;)
        pause();
    return nothing;
}

static void *writes(void *word)
{
    /* What is between the writes keeps each of them from being hidden in the store buffer. */
    for (;;) {
        (*(volatile long *)word)++;
        for (volatile int i = 0; i < 20; i++)
            ;
    }
    return NULL;
}

static void threads(long count)
{
    long there = 0;
    pthread_attr_t small;
    pthread_t thread;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, PTHREAD_STACK_MIN);
    while (there < count && pthread_create(&thread, &small, sleeps, NULL) == 0)
        there++;
    for (int i = 0; i < 2; i++)
        pthread_create(&thread, &small, writes, (void *)&words[i]);
    printf("%ld\n", there);
    wait_for_the_end();
    _exit(0);
}

int main(int argc, char **argv)
{
    long count = argc > 2 ? atol(argv[2]) : 0;
    if (argc > 3 && strcmp(argv[1], "starts") == 0)
        printf("%ld\n", starts(count, argv[3]));
    else if (argc > 2 && strcmp(argv[1], "processes") == 0)
        processes(count, sleep_for_ever);
    else if (argc > 2 && strcmp(argv[1], "busy") == 0)
        processes(count, work);
    else if (argc > 2 && strcmp(argv[1], "threads") == 0)
        threads(count);
    else
        return 2;
    return 0;
}
