/* Two threads that update adjacent counters; linked statically by the test. */
#include <pthread.h>
#include <stdio.h>

static volatile long counters[2];
static volatile long scratch[2][64];

static void *work(void *p)
{
    long id = (long)p;
    for (long i = 0; i < 20000000; i++) {
        counters[id] += 10;
        scratch[id][32] = i;
    }
    return 0;
}

int main(void)
{
    pthread_t t[2];
    for (long i = 0; i < 2; i++)
        pthread_create(&t[i], 0, work, (void *)i);
    for (int i = 0; i < 2; i++)
        pthread_join(t[i], 0);
    printf("checksum %ld\n", counters[0] + counters[1]);
    return 0;
}
