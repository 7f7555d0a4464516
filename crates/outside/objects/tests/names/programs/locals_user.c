/* Prints, for two threads, the thread's number, its thread pointer, and the addresses of
 * the library's thread-local variables; then its mappings; then waits. The library is
 * linked, or loaded while the threads run if its path is given. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* Makes the library the second module with thread-local variables. */
__thread long own = 1;

static void *(*where[3])(void);
static pthread_barrier_t loaded, told;

static void tell(void)
{
    /* Each thread uses its variables: some blocks are only made then. */
    void *at[3];
    for (int i = 0; i < 3; i++)
        at[i] = where[i]();
    printf("thread %d %p %p %p %p\n", gettid(), __builtin_thread_pointer(), at[0], at[1], at[2]);
}

static void *second(void *argument)
{
    pthread_barrier_wait(&loaded);
    tell();
    pthread_barrier_wait(&told);
    pause();
    return argument;
}

static void *function(void *library, const char *name)
{
    void *found = dlsym(library, name);
    if (!found) {
        puts(dlerror());
        exit(2);
    }
    return found;
}

int main(int argc, char **argv)
{
    pthread_t thread;
    pthread_barrier_init(&loaded, NULL, 2);
    pthread_barrier_init(&told, NULL, 2);
    pthread_create(&thread, NULL, second, NULL);
    void *library = argc > 1 ? dlopen(argv[1], RTLD_NOW) : RTLD_DEFAULT;
    if (argc > 1 && !library) {
        puts(dlerror());
        return 2;
    }
    where[0] = function(library, "hidden_slot");
    where[1] = function(library, "shown_slot");
    where[2] = function(library, "zeroed_bytes");
    pthread_barrier_wait(&loaded);
    tell();
    pthread_barrier_wait(&told);
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[4096];
    while (maps && fgets(line, sizeof line, maps))
        fputs(line, stdout);
    puts("ready");
    fflush(stdout);
    return getchar() == EOF;
}
