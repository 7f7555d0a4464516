/* Two threads count in the first and the last word of an element of a line each. The elements lie on
 * lines: with "aligned" because their block was requested so, else because the program left room in
 * front of them. Then the block could start elsewhere, and the elements of a program that does not
 * look would share lines. The second argument is the number of rounds. */
#define _POSIX_C_SOURCE 200112L
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LINE = 64 };

static char *elements;
static long rounds;

static void *work(void *argument) {
    volatile long *element = (volatile long *)(elements + (intptr_t)argument * LINE);
    for (long i = 0; i < rounds; i++) {
        element[0]++;
        element[LINE / sizeof(long) - 1]++;
    }
    return NULL;
}

int main(int count, char **arguments) {
    int aligned = count > 1 && strcmp(arguments[1], "aligned") == 0;
    rounds = count > 2 ? atol(arguments[2]) : 1000;
    void *block = NULL;
    if (aligned) {
        if (posix_memalign(&block, 2 * LINE, 2 * LINE) != 0) return 1;
        elements = block;
    } else {
        block = malloc(4 * LINE);
        elements = (char *)(((uintptr_t)block + 2 * LINE - 1) / (2 * LINE) * (2 * LINE));
    }
    memset(elements, 0, 2 * LINE);
    pthread_t threads[2];
    for (intptr_t i = 0; i < 2; i++) pthread_create(&threads[i], NULL, work, (void *)i);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    printf("%ld\n", *(long *)elements + *(long *)(elements + LINE));
    free(block);
    return 0;
}
