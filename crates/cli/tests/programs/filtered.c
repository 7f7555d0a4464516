/* A program that lets seccomp look at its system calls and allows them all; then two threads share a
 * page for a while. */
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sys/prctl.h>

volatile long shared[512] __attribute__((aligned(4096)));

static void *work(void *p) {
    for (long i = 0; i < 600000000; i++) shared[(long)p]++;
    return 0;
}

int main(void) {
    struct sock_filter filter[] = {BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
    struct sock_fprog program = {.len = 1, .filter = filter};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
        return 1;
    pthread_t threads[2];
    for (long i = 0; i < 2; i++) pthread_create(&threads[i], 0, work, (void *)i);
    for (long i = 0; i < 2; i++) pthread_join(threads[i], 0);
    return 5;
}
