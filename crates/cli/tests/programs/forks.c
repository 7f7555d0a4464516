/* Programs whose threads run in other processes than the first one. The argument says
 * how: `fork` runs them in a forked child; `exec` in a child that executes this program
 * again; `late-exec` the same after the child has worked for a while; `become` in this
 * process, after it has executed this program again. What the threads share is the
 * global `tallies`, or a block that is allocated in
 *   `heap`          the process itself,
 *   `fork-heap`     a forked child,
 *   `exec-heap`     the program that a child executes, in any of the ways that
 *                   the second argument names,
 *   `before-heap`   the parent, before it forks,
 *   `daemon-heap`   the child of a child that has ended,
 *   `become-heap`   this program after an exec in place, in the way that the
 *                   second argument names.
 * `serve` has two children of one thread each, which share memory; in
 * `serve-apart` they have lines of their own, in `twins` only the addresses are
 * the same. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

struct tally {
    long hits, misses;
} tallies[4];

static void *work(void *p)
{
    struct tally *t = p;
    volatile long scratch[64];
    for (long i = 0; i < 100000000; i++) {
        scratch[i % 64] = i;
        *(volatile long *)&t->hits += 1;
        *(volatile long *)&t->misses += i & 1;
    }
    return 0;
}

static int share(struct tally *shared)
{
    pthread_t t[2];
    for (long i = 0; i < 2; i++)
        pthread_create(&t[i], 0, work, &shared[i]);
    for (int i = 0; i < 2; i++)
        pthread_join(t[i], 0);
    printf("checksum %ld\n", shared[0].hits + shared[1].misses);
    fflush(stdout);
    return 0;
}

static struct tally *allocate(void)
{
    return aligned_alloc(64, 4 * sizeof(struct tally));
}

static int share_heap(void)
{
    struct tally *block = memset(allocate(), 0, 4 * sizeof *block);
    share(block);
    free(block);
    return 0;
}

static int ended(pid_t child)
{
    int status = 1;
    waitpid(child, &status, 0);
    return WEXITSTATUS(status);
}

/* Executes this program again, which then runs `heap`. */
static int execute(const char *way, char *self)
{
    char *list[] = {self, "heap", 0};
    if (!strcmp(way, "execv"))
        execv(self, list);
    else if (!strcmp(way, "execl"))
        execl(self, self, "heap", (char *)0);
    else if (!strcmp(way, "execlp"))
        execlp(self, self, "heap", (char *)0);
    else if (!strcmp(way, "execle"))
        execle(self, self, "heap", (char *)0, environ);
    else if (!strcmp(way, "many"))
        execl(self, self, "heap", "a", "b", "c", "d", "e", "f", (char *)0);
    else if (!strcmp(way, "fexecve"))
        fexecve(open(self, O_RDONLY | O_CLOEXEC), list, environ);
    else if (!strcmp(way, "syscall"))
        syscall(SYS_execve, self, list, environ);
    else if (!strcmp(way, "closed")) {
        for (int fd = 3; fd < 1024; fd++)
            close(fd);
        clearenv();
        execv(self, list);
    }
    return 1;
}

static int child_executes(const char *way, char *self)
{
    pid_t child;
    if (!strcmp(way, "spawn")) {
        char *list[] = {self, "heap", 0};
        if (posix_spawn(&child, self, 0, 0, list, environ))
            return 1;
        return ended(child);
    }
    if (!strcmp(way, "vfork")) {
        child = vfork();
        if (child == 0) {
            execl(self, self, "heap", (char *)0);
            _exit(1);
        }
        return ended(child);
    }
    child = fork();
    if (child == 0)
        _exit(execute(way, self));
    return ended(child);
}

/* A block from before the fork, used in the child. */
static int share_inherited(void)
{
    struct tally *block = memset(allocate(), 0, 4 * sizeof *block);
    pid_t child = fork();
    if (child == 0)
        _exit(share(block));
    int status = ended(child);
    free(block);
    return status;
}

/* Like servers that fork before they serve: each child counts in a slot of its own in
 * memory that all children share. With `apart` each slot has a line. */
static int serve(int apart)
{
    struct tally *slots = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int status = 0;
    for (int i = 0; i < 2; i++)
        if (fork() == 0) {
            work(&slots[apart ? 16 * i : i]);
            _exit(0);
        }
    for (int i = 0; i < 2; i++) {
        int one;
        wait(&one);
        status |= one;
    }
    printf("served %ld\n", slots[0].hits + slots[apart ? 16 : 1].hits);
    return status != 0;
}

/* Two children use the same addresses, each by one thread only. */
static int twins(void)
{
    for (long i = 0; i < 2; i++)
        if (fork() == 0) {
            work(&tallies[i]);
            _exit(0);
        }
    int status = 0, one;
    for (int i = 0; i < 2; i++) {
        wait(&one);
        status |= one;
    }
    return status != 0;
}

static int share_in_daemon(void)
{
    int through[2];
    char end;
    if (pipe(through))
        return 1;
    if (fork() == 0) {
        if (fork() == 0) {
            share_heap();
            _exit(write(through[1], "x", 1) != 1);
        }
        _exit(0);
    }
    close(through[1]);
    return read(through[0], &end, 1) != 1;
}

int main(int argc, char **argv)
{
    const char *how = argc > 1 ? argv[1] : "";
    if (!strcmp(how, "work"))
        return share(tallies);
    if (!strcmp(how, "heap"))
        return share_heap();
    if (!strcmp(how, "exec-heap") && argc > 2)
        return child_executes(argv[2], argv[0]);
    if (!strcmp(how, "become-heap") && argc > 2)
        return execute(argv[2], argv[0]);
    if (!strcmp(how, "before-heap"))
        return share_inherited();
    if (!strcmp(how, "serve"))
        return serve(0);
    if (!strcmp(how, "serve-apart"))
        return serve(1);
    if (!strcmp(how, "twins"))
        return twins();
    if (!strcmp(how, "daemon-heap"))
        return share_in_daemon();
    if (!strcmp(how, "fork-heap")) {
        pid_t child = fork();
        if (child == 0)
            _exit(share_heap());
        return ended(child);
    }
    if (!strcmp(how, "become")) {
        execv(argv[0], (char *[]){argv[0], "work", 0});
        return 1;
    }
    if (!strcmp(how, "fork") || !strcmp(how, "exec") || !strcmp(how, "late-exec")) {
        pid_t child = fork();
        if (child == 0) {
            if (!strcmp(how, "fork"))
                exit(share(tallies));
            if (!strcmp(how, "late-exec"))
                work(&tallies[3]);
            execv(argv[0], (char *[]){argv[0], "work", 0});
            _exit(1);
        }
        int status;
        waitpid(child, &status, 0);
        return WEXITSTATUS(status);
    }
    fprintf(stderr, "unknown: %s\n", how);
    return 99;
}
