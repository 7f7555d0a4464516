/* Two blocks that one line of source allocates by two calls; a thread writes each. They lie on one
 * line of the cache, as the program sees to. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static long *first, *second;
/* So that the next pair lies differently. */
static void *volatile filler;

static void allocate(void)
{
    first = malloc(8); second = malloc(8); /* one line */
}

static void *work(void *p)
{
    volatile long *counter = p;
    long own[64];
    for (long i = 0; i < 60000000; i++) {
        *counter += 1;
        ((volatile long *)own)[i % 64] = i;
    }
    return 0;
}

int main(void)
{
    do {
        filler = malloc(8);
        allocate();
    } while ((unsigned long)first / 64 != (unsigned long)second / 64);
    *first = *second = 0;
    pthread_t t[2];
    pthread_create(&t[0], 0, work, first);
    pthread_create(&t[1], 0, work, second);
    for (int i = 0; i < 2; i++)
        pthread_join(t[i], 0);
    printf("checksum %ld\n", *first + *second);
    return 0;
}
