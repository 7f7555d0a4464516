/* 5,000 threads, one after another; prints the block of the last. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
static void *run(void *a) { (void)a; return malloc(24); }
int main(void) {
    void *block = NULL;
    for (int i = 0; i < 5000; i++) {
        pthread_t t;
        if (pthread_create(&t, NULL, run, NULL) || pthread_join(t, &block)) return 1;
    }
    printf("%p\nready\n", block);
    fflush(stdout);
    while (getchar() != EOF) {}
    return 0;
}
