/* The identity of a thread: process, numbers, names, CPUs, local data and its end. */
#include "check.h"
#include <sched.h>
#include <sys/syscall.h>

static pthread_key_t first, second;
static __thread long local = 7;
static __thread char block[5000];
static pid_t ids[THREADS];
static long *locals[THREADS];
static long ended[2], again;
static pthread_barrier_t together;

static void end_first(void *value) {
    CHECK(*(long *)value == 1);
    __atomic_fetch_add(&ended[0], 1, __ATOMIC_RELAXED);
    free(value);
}

/* Sets its key again, so that the destructor is called once more. */
static void end_second(void *value) {
    __atomic_fetch_add(&ended[1], 1, __ATOMIC_RELAXED);
    if ((long)value == 1) {
        __atomic_fetch_add(&again, 1, __ATOMIC_RELAXED);
        DO(pthread_setspecific(second, (void *)2));
    }
}

static void *live(void *number) {
    long own = (long)number;
    long *mine = malloc(sizeof *mine);
    *mine = 1;
    DO(pthread_setspecific(first, mine));
    DO(pthread_setspecific(second, (void *)1));
    CHECK(local == 7);
    for (size_t i = 0; i < sizeof block; i++) CHECK(block[i] == 0);
    memset(block, (int)own + 1, sizeof block);
    local = own;
    locals[own] = &local;
    ids[own] = syscall(SYS_gettid);
    CHECK(ids[own] == gettid() && syscall(SYS_getpid) == getpid() && gettid() != getpid());
    char name[16], wanted[16];
    snprintf(wanted, sizeof wanted, "thread-%ld", own);
    DO(pthread_setname_np(pthread_self(), wanted));
    pthread_barrier_wait(&together);
    for (int i = 0; i < 100; i++) {
        heat(own, 10000 * scale);
        DO(pthread_getname_np(pthread_self(), name, sizeof name));
        CHECK(strcmp(name, wanted) == 0);
        CHECK(local == own && block[0] == own + 1 && block[4999] == own + 1);
        CHECK(gettid() == ids[own] && *mine == 1);
    }
    cpu_set_t set;
    CPU_ZERO(&set);
    DO(pthread_getaffinity_np(pthread_self(), sizeof set, &set));
    int cpu = 0;
    while (!CPU_ISSET(cpu, &set)) cpu++;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    DO(pthread_setaffinity_np(pthread_self(), sizeof set, &set));
    heat(own, 10000);
    CHECK(sched_getcpu() == cpu);
    pthread_attr_t attributes;
    void *low;
    size_t size;
    DO(pthread_getattr_np(pthread_self(), &attributes));
    DO(pthread_attr_getstack(&attributes, &low, &size));
    CHECK((char *)&attributes > (char *)low && (char *)&attributes < (char *)low + size);
    DO(pthread_attr_destroy(&attributes));
    pthread_barrier_wait(&together);
    /* Each thread's local data has an address of its own and can be read by all. */
    for (int k = 0; k < THREADS; k++) CHECK(*locals[k] == k && (k == own || ids[k] != ids[own]));
    pthread_barrier_wait(&together);
    if (own == 0) pthread_exit((void *)100L);
    return (void *)(100 + own);
}

int main(int argc, char **argv) {
    arguments(argc, argv);
    DO(pthread_key_create(&first, end_first));
    DO(pthread_key_create(&second, end_second));
    DO(pthread_barrier_init(&together, NULL, THREADS));
    pthread_t thread[THREADS];
    for (long i = 0; i < THREADS; i++) DO(pthread_create(&thread[i], NULL, live, (void *)i));
    for (long i = 0; i < THREADS; i++) {
        void *value;
        DO(pthread_join(thread[i], &value));
        CHECK((long)value == 100 + i);
    }
    printf("ends: %ld, %ld with %ld again\n", ended[0], ended[1], again);
    CHECK(gettid() == getpid() && local == 7);
    for (long i = 0; i < THREADS; i++) cool(i, 100 * 10000 * scale + 10000);
    return 0;
}
