/* Two threads write to neighbouring words, in a process that does not stay as it is.
 * execs MS        for so long, then the process executes this program again, which sleeps
 * ends MS         for so long, then the process ends
 * generations MS  two threads for so long, then two others, until it is killed
 * forks           for ever, while the process starts others, which end at once */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static struct {
    volatile long of_first, of_second;
} neighbours;
static atomic_int over;

static void *count(void *own)
{
    volatile long *word = own;
    unsigned long mixed = 1;
    while (!atomic_load_explicit(&over, memory_order_relaxed)) {
        *word = *word + 1;
        for (int i = 0; i < 4; i++)
            mixed = mixed * 6364136223846793005ul + 1442695040888963407ul;
        __asm__ volatile("" : : "r"(mixed));
    }
    return NULL;
}

static void two_threads(long ms, void (*meanwhile)(void))
{
    pthread_t threads[2];
    atomic_store(&over, 0);
    pthread_create(&threads[0], NULL, count, (void *)&neighbours.of_first);
    pthread_create(&threads[1], NULL, count, (void *)&neighbours.of_second);
    for (long i = 0; i < ms; i++) {
        if (meanwhile)
            meanwhile();
        usleep(1000);
    }
    atomic_store(&over, 1);
    pthread_join(threads[0], NULL);
    pthread_join(threads[1], NULL);
}

static void start_another(void)
{
    pid_t pid = vfork();
    if (pid == 0)
        _exit(0);
    waitpid(pid, NULL, 0);
}

int main(int argc, char **argv)
{
    const char *mode = argc > 1 ? argv[1] : "";
    long ms = argc > 2 ? atol(argv[2]) : 0;
    if (strcmp(mode, "execs") == 0) {
        two_threads(ms, NULL);
        execl("/proc/self/exe", argv[0], "sleeps", (char *)NULL);
    } else if (strcmp(mode, "ends") == 0) {
        two_threads(ms, NULL);
        return 0;
    } else if (strcmp(mode, "generations") == 0) {
        for (;;)
            two_threads(ms, NULL);
    } else if (strcmp(mode, "forks") == 0) {
        for (;;)
            two_threads(1000, start_another);
    } else if (strcmp(mode, "sleeps") == 0) {
        for (;;)
            pause();
    }
    return 2;
}
