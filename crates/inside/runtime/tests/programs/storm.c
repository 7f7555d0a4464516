/* Threads allocate and free each other's blocks while others fork, load and
 * unload libraries, and start and end threads; allocations also happen in
 * destructors and at exit. Prints a checksum of what it wrote. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
enum { SHARED = 512, ROUNDS = 25000 };
static void *slots[SHARED];
static _Atomic int running = 1;
static _Atomic unsigned long checked;
static void fill(unsigned char *p, unsigned n) { *(unsigned *)p = n; memset(p + 4, n & 255, n - 4); }
static void check(unsigned char *p) {
    unsigned n = *(unsigned *)p;
    for (unsigned i = 4; i < n; i++) if (p[i] != (n & 255)) abort();
    checked++;
}
static void *churn(void *a) {
    unsigned seed = (unsigned)(size_t)a;
    for (int i = 0; i < ROUNDS; i++) {
        seed = seed * 1664525 + 1013904223;
        unsigned n = 8 + (seed >> 10) % (i % 500 ? 300 : 60000);
        unsigned char *p = malloc(n);
        fill(p, n);
        unsigned char *old = __atomic_exchange_n(&slots[seed >> 23], p, __ATOMIC_ACQ_REL);
        if (old) { check(old); free(old); }
    }
    return a;
}
static void *forks(void *a) {
    while (running) {
        int status;
        pid_t pid = fork();
        if (!pid) { for (int i = 0; i < 100; i++) free(malloc(100)); _exit(0); }
        if (waitpid(pid, &status, 0) != pid || status) abort();
    }
    return a;
}
static void *loads(void *a) {
    while (running) {
        void *l = dlopen("libm.so.6", RTLD_NOW | RTLD_LOCAL);
        void *m = dlopen("libresolv.so.2", RTLD_NOW | RTLD_LOCAL);
        if (l) dlclose(l);
        if (m) dlclose(m);
    }
    return a;
}
static pthread_key_t key;
static void late(void *p) { check(p); free(p); free(malloc(1000)); }
static void *brief(void *a) {
    unsigned char *p = malloc(64);
    fill(p, 64);
    pthread_setspecific(key, p);
    return a;
}
static void *starts(void *a) {
    while (running) {
        pthread_t t;
        if (pthread_create(&t, NULL, brief, NULL) || pthread_join(t, NULL)) abort();
    }
    return a;
}
static void *kept;
static void at_exit(void) { free(kept); free(malloc(10)); }
__attribute__((destructor)) static void last(void) { free(malloc(10)); }
int main(void) {
    pthread_t churners[3], others[3];
    kept = malloc(99);
    atexit(at_exit);
    pthread_key_create(&key, late);
    for (long i = 0; i < 3; i++) pthread_create(&churners[i], NULL, churn, (void *)(i + 1));
    pthread_create(&others[0], NULL, forks, NULL);
    pthread_create(&others[1], NULL, loads, NULL);
    pthread_create(&others[2], NULL, starts, NULL);
    for (int i = 0; i < 3; i++) pthread_join(churners[i], NULL);
    running = 0;
    for (int i = 0; i < 3; i++) pthread_join(others[i], NULL);
    for (int i = 0; i < SHARED; i++) if (slots[i]) { check(slots[i]); free(slots[i]); }
    printf("%s\n", checked >= 3 * ROUNDS ? "all blocks intact" : "blocks lost");
    return 0;
}
