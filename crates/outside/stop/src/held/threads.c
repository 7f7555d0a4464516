/* Starts three threads that compute, waits for some milliseconds, and then executes itself again as
 * often as the first argument says; the last time it ends with status 7. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static void *compute(void *unused) {
    for (volatile long i = 0;; i++) {}
    return unused;
}

int main(int argc, char **argv) {
    long left = argc > 1 ? atol(argv[1]) : 0;
    for (int i = 0; i < 3; i++) {
        pthread_t thread;
        pthread_create(&thread, 0, compute, 0);
    }
    usleep(4000);
    if (left == 0) return 7;
    char number[32];
    snprintf(number, sizeof number, "%ld", left - 1);
    execl("/proc/self/exe", argv[0], number, (char *)0);
    return 1;
}
