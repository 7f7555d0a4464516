/* Two elements of an array on the heap that two threads write; linked statically by the test, so that
 * nobody records the heap and only types lead to names. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

struct tally {
    long seen, kept;
};

static void *work(void *p)
{
    volatile struct tally *mine = p;
    long own[64];
    for (long i = 0; i < 60000000; i++) {
        mine->kept += 1;
        ((volatile long *)own)[i % 64] = i;
    }
    return 0;
}

int main(void)
{
    struct tally *all = aligned_alloc(64, 64);
    pthread_t t[2];
    for (int i = 0; i < 2; i++) {
        all[i].seen = all[i].kept = 0;
        pthread_create(&t[i], 0, work, &all[i]);
    }
    for (int i = 0; i < 2; i++)
        pthread_join(t[i], 0);
    printf("checksum %ld\n", all[0].kept + all[1].kept);
    return 0;
}
