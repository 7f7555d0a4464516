// The first thread ends; another goes on until its standard input ends.
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

static pthread_t first;

static void *rest(void *nothing)
{
    char byte;
    pthread_join(first, NULL);
    puts("alone");
    fflush(stdout);
    while (read(0, &byte, 1) > 0) {
    }
    return nothing;
}

int main(void)
{
    pthread_t thread;
    first = pthread_self();
    pthread_create(&thread, NULL, rest, NULL);
    pthread_exit(NULL);
}
