/* Programs whose threads run in other processes than the first one. The argument
 * says how: `fork` runs them in a child, `exec` in a program of its own, this
 * one again, in a child; `become` after an exec of this one in place. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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

static int share(void)
{
    pthread_t t[2];
    for (long i = 0; i < 2; i++)
        pthread_create(&t[i], 0, work, &tallies[i]);
    for (int i = 0; i < 2; i++)
        pthread_join(t[i], 0);
    printf("checksum %ld\n", tallies[0].hits + tallies[1].misses);
    return 0;
}

int main(int argc, char **argv)
{
    const char *how = argc > 1 ? argv[1] : "";
    if (!strcmp(how, "work"))
        return share();
    if (!strcmp(how, "become")) {
        execv(argv[0], (char *[]){argv[0], "work", 0});
        return 1;
    }
    if (!strcmp(how, "fork") || !strcmp(how, "exec")) {
        pid_t child = fork();
        if (child == 0) {
            if (!strcmp(how, "fork"))
                exit(share());
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
