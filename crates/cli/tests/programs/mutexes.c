/* Two threads, each with a mutex and a sum of its own, side by side: `mutexes ROUNDS`. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

struct account {
    pthread_mutex_t lock;
    long sum;
};

static struct account accounts[2] __attribute__((aligned(64)));
static long rounds;

static void *add(void *argument) {
    struct account *account = argument;
    for (long i = 0; i < rounds; i++) {
        pthread_mutex_lock(&account->lock);
        account->sum += i & 7;
        pthread_mutex_unlock(&account->lock);
    }
    return NULL;
}

int main(int argc, char **argv) {
    pthread_t threads[2];
    rounds = argc > 1 ? atol(argv[1]) : 1000000;
    for (int i = 0; i < 2; i++) {
        pthread_mutex_init(&accounts[i].lock, NULL);
        pthread_create(&threads[i], NULL, add, &accounts[i]);
    }
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    printf("%ld\n", accounts[0].sum + accounts[1].sum);
    return 0;
}
