/* Forks again and again while other threads allocate; each child allocates,
 * frees what it has inherited, starts threads of its own, and ends. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { OTHERS = 3, FORKS = 40, BLOCKS = 500 };

static volatile int over;

static void churn(unsigned seed, int rounds) {
    void *block[BLOCKS] = {0};
    for (int i = 0; i < rounds; i++) {
        seed = seed * 1103515245u + 12345u;
        unsigned at = seed / 65536u % BLOCKS;
        free(block[at]);
        size_t size = seed / 256u % (i % 100 == 0 ? 200000u : 600u);
        block[at] = malloc(size);
        if (block[at] == NULL) abort();
        memset(block[at], 7, size);
    }
    for (int i = 0; i < BLOCKS; i++) free(block[i]);
}

static void *other(void *seed) {
    while (!over) churn((unsigned)(unsigned long)seed, 2000);
    return NULL;
}

static void *short_lived(void *seed) {
    churn((unsigned)(unsigned long)seed, 2000);
    return NULL;
}

int main(void) {
    pthread_t thread[OTHERS];
    void *inherited[BLOCKS];
    for (long i = 0; i < BLOCKS; i++) inherited[i] = malloc((size_t)i * 5);
    for (long i = 0; i < OTHERS; i++) pthread_create(&thread[i], NULL, other, (void *)(i + 1));
    for (int i = 0; i < FORKS; i++) {
        pid_t child = fork();
        if (child == 0) {
            pthread_t mine;
            churn(99, 5000);
            for (int j = 0; j < BLOCKS; j++) free(inherited[j]);
            if (pthread_create(&mine, NULL, short_lived, (void *)5L) != 0) _exit(2);
            pthread_join(mine, NULL);
            exit(0);
        }
        int status = 0;
        if (child < 0 || waitpid(child, &status, 0) != child || status != 0) {
            fprintf(stderr, "a child ended with %x\n", status);
            return 1;
        }
    }
    over = 1;
    for (int i = 0; i < OTHERS; i++) pthread_join(thread[i], NULL);
    puts("ok");
    return 0;
}
