/* Children of a program with threads: fork with memory of its own, exec, spawn,
 * system, popen; and `wait` reports these children and no others. */
#include "check.h"
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>

extern char **environ;
static volatile int stop;
static long global = 1, prepared, parent, child;
static volatile long *shared;

static void *compute(void *number) {
    while (!stop) heat((long)number, 1000);
    return NULL;
}

static void prepare(void) { prepared++; }
static void in_parent(void) { parent++; }
static void in_child(void) { child++; }

static int status_of(pid_t wanted) {
    int status = -1;
    CHECK(waitpid(wanted, &status, 0) == wanted);
    return status;
}

static void forks(long round) {
    long on_stack = round, *on_heap = malloc(sizeof *on_heap);
    *on_heap = round;
    *shared = 0;
    pid_t id = fork();
    CHECK(id >= 0);
    if (id == 0) {
        /* What the child writes reaches the parent only through shared mappings. */
        CHECK(child == 1 && getppid() != getpid());
        global = on_stack = *on_heap = hot[5] = -1;
        void *more = malloc(1 << 20);
        memset(more, 1, 1 << 20);
        free(more);
        CHECK(global == -1 && *on_heap == -1 && hot[5] == -1 && on_stack == -1);
        *shared = 1;
        _exit(3);
    }
    CHECK(status_of(id) == 3 << 8);
    CHECK(*shared == 1 && global == 1 && on_stack == round && *on_heap == round && hot[5] == 0);
    free(on_heap);
}

/* A thread forks a child that starts threads of its own. */
static void *fork_here(void *unused) {
    pid_t id = fork();
    CHECK(id >= 0);
    if (id == 0) {
        stop = 1;
        pthread_t thread;
        hot[6] = 0;
        DO(pthread_create(&thread, NULL, compute, (void *)6L));
        DO(pthread_join(thread, NULL));
        exit(4);
    }
    CHECK(status_of(id) == 4 << 8);
    return unused;
}

int main(int argc, char **argv) {
    arguments(argc, argv);
    setvbuf(stdout, NULL, _IONBF, 0);
    DO(pthread_atfork(prepare, in_parent, in_child));
    shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(shared != MAP_FAILED);
    pthread_t thread[2], forking;
    for (long i = 0; i < 2; i++) DO(pthread_create(&thread[i], NULL, compute, (void *)i));
    heat(2, 20000000);
    for (long i = 0; i < 10 * scale; i++) forks(i);
    CHECK(prepared == parent && parent == 10 * scale && child == 0);
    DO(pthread_create(&forking, NULL, fork_here, NULL));
    DO(pthread_join(forking, NULL));

    pid_t id = vfork();
    if (id == 0) {
        execl("/bin/sh", "sh", "-c", "echo from a vforked shell; exit 5", NULL);
        _exit(127);
    }
    CHECK(status_of(id) == 5 << 8);
    char *words[] = {"sh", "-c", "echo from a spawned shell; exit 6", NULL};
    DO(posix_spawn(&id, "/bin/sh", NULL, NULL, words, environ));
    CHECK(status_of(id) == 6 << 8);
    CHECK(system("echo from system; exit 7") == 7 << 8);
    FILE *pipe = popen("echo through a pipe", "r");
    char line[64] = "";
    CHECK(pipe != NULL && fgets(line, sizeof line, pipe) != NULL && pclose(pipe) == 0);
    fputs(line, stdout);
    /* There are no other children. */
    CHECK(waitpid(-1, NULL, 0) == -1 && errno == ECHILD);
    stop = 1;
    for (int i = 0; i < 2; i++) DO(pthread_join(thread[i], NULL));
    execl("/bin/sh", "sh", "-c", "echo and became a shell; exit 9", NULL);
    return 1;
}
