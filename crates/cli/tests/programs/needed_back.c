/* Two threads share a line falsely, while a third passes memory on the same page to the kernel
 * now and then: moved bytes have to go back for that, and can be moved again. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static struct {
    volatile long count[2];
    char text[512];
} __attribute__((aligned(4096))) shared;

static void *work(void *argument) {
    long which = (long)argument;
    volatile long own[8] = {0};
    for (long i = 0; i < 300000000; i++) {
        shared.count[which]++;
        own[i % 8] = i;
    }
    return NULL;
}

int main(void) {
    pthread_t threads[2];
    for (long i = 0; i < 2; i++) pthread_create(&threads[i], NULL, work, (void *)i);
    int ends[2], wrong = pipe(ends) != 0;
    for (int i = 0; i < 4; i++) {
        usleep(300000);
        char text[64] = {0};
        snprintf(text, sizeof text, "round %d", i);
        wrong += write(ends[1], text, sizeof text) != sizeof text;
        wrong += read(ends[0], shared.text + 100, sizeof text) != sizeof text;
        wrong += strcmp(shared.text + 100, text) != 0;
    }
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    printf("%ld %ld wrong %d\n", shared.count[0], shared.count[1], wrong);
    return 0;
}
