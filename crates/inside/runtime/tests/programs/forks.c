/* Forks in several ways; each child frees its parent's blocks and allocates
 * blocks at addresses that the parent does not use. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
enum { COUNT = 100 };
static void *blocks[COUNT];
static void *nothing(void *a) { free(malloc(50)); return a; }
static void child(void) {
    pthread_t t;
    for (int i = 0; i < COUNT; i++) free(blocks[i]);
    for (int i = 0; i < 20; i++) printf("child %p\n", malloc((1 << 20) + i)); /* mappings */
    if (pthread_create(&t, NULL, nothing, NULL) || pthread_join(t, NULL)) _exit(1);
    fflush(stdout);
}
int main(void) {
    static char buffer[1 << 16];
    setvbuf(stdout, buffer, _IOFBF, sizeof buffer);
    int status;
    for (int i = 0; i < COUNT; i++) blocks[i] = malloc(100 + i);
    pid_t pid = fork();
    if (!pid) { child(); exit(0); }
    if (waitpid(pid, &status, 0) != pid || status) return 1;
    pid = syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0); /* a fork that the C library does not see */
    if (!pid) { child(); _exit(0); }
    if (waitpid(pid, &status, 0) != pid || status) return 2;
    if (system("true")) return 3;
    pid = vfork();
    if (!pid) { execlp("true", "true", (char *)0); _exit(9); }
    if (waitpid(pid, &status, 0) != pid || status) return 4;
    for (int i = 0; i < COUNT; i++) printf("parent %p\n", blocks[i]);
    printf("ready\n");
    fflush(stdout);
    while (getchar_unlocked() != EOF) {}
    return 0;
}
