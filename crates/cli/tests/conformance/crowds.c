/* Five hundred threads alive at once, thousands one after the other, detached
 * threads, small stacks, and stacks of the program's own. */
#include "check.h"
#include <limits.h>
#include <semaphore.h>
#include <sys/mman.h>

static pthread_barrier_t all;
static long marks[500];
static sem_t ended;
static _Atomic long total;

static void *wait_and_mark(void *number) {
    marks[(long)number] = (long)number + 1;
    pthread_barrier_wait(&all);
    for (int i = 0; i < 500; i++)
        if (marks[i] != i + 1) return (void *)1;
    pthread_barrier_wait(&all);
    return NULL;
}

static void *short_life(void *number) {
    heat((long)number % 4, 100);
    total++;
    return number;
}

static void *alone(void *unused) {
    total++;
    CHECK(sem_post(&ended) == 0);
    return unused;
}

int main(int argc, char **argv) {
    arguments(argc, argv);
    static pthread_t thread[500];
    DO(pthread_barrier_init(&all, NULL, 501));
    pthread_attr_t attributes;
    DO(pthread_attr_init(&attributes));
    DO(pthread_attr_setstacksize(&attributes, 1 << 16));
    for (long i = 0; i < 500; i++) DO(pthread_create(&thread[i], &attributes, wait_and_mark, (void *)i));
    pthread_barrier_wait(&all);
    pthread_barrier_wait(&all);
    for (int i = 0; i < 500; i++) {
        void *wrong;
        DO(pthread_join(thread[i], &wrong));
        CHECK(wrong == NULL);
    }
    puts("five hundred at once");
    for (long i = 0; i < 300 * scale; i++) {
        for (long k = 0; k < 4; k++) DO(pthread_create(&thread[k], NULL, short_life, (void *)(4 * i + k)));
        for (long k = 0; k < 4; k++) {
            void *value;
            DO(pthread_join(thread[k], &value));
            CHECK((long)value == 4 * i + k);
        }
    }
    for (long k = 0; k < 4; k++) cool(k, 300 * scale * 100);
    printf("one after the other: %d\n", total == 1200 * scale);
    CHECK(sem_init(&ended, 0, 0) == 0);
    DO(pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED));
    for (int i = 0; i < 100; i++) DO(pthread_create(&thread[0], &attributes, alone, NULL));
    for (int i = 0; i < 100; i++) CHECK(sem_wait(&ended) == 0);
    puts("a hundred detached");
    size_t size = 1 << 18;
    char *stack = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(stack != MAP_FAILED);
    DO(pthread_attr_init(&attributes));
    DO(pthread_attr_setstack(&attributes, stack, size));
    for (long i = 0; i < 20; i++) {
        DO(pthread_create(&thread[0], &attributes, short_life, (void *)i));
        DO(pthread_join(thread[0], NULL));
    }
    CHECK(munmap(stack, size) == 0);
    puts("on a stack of the program's own");
    return 0;
}
