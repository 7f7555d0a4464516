/* Two threads write to one page, in loops of plain writes, and synchronise by a lock between rounds.
 * Every write changes all eight bytes of a thread's word or none, so a commit finds eight bytes
 * changed. They stop when standard input ends.
 * `own`: the first thread writes bytes 0 to 7, the second bytes 8 to 15. `same`: both write bytes 0
 * to 7, and nothing orders that. `apart`: bytes 0 to 7 of two lines. `again` executes this program
 * once more first. `forks` forks after that. Prints the page's address and the threads' numbers. */
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

volatile unsigned long shared[512] __attribute__((aligned(4096)));
static char beyond[4096] __attribute__((aligned(4096)));
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static long rounds[2], threads[2];
static int apart;

/* In a function of its own, without any instruction that orders memory. */
__attribute__((noinline, aligned(4096))) static void compute(volatile unsigned long *own) {
    for (unsigned long i = 1; i < 20000000; i++) *own = (i % 255 + 1) * 0x0101010101010101ul;
}

/* The next page of code begins behind it. */
__attribute__((noinline, aligned(4096))) static int is_over(void) {
    struct pollfd in = {.fd = 0, .events = POLLIN};
    return poll(&in, 1, 0) > 0;
}

static void *work(void *number) {
    long id = (long)number;
    threads[id] = syscall(SYS_gettid);
    while (!is_over()) {
        compute(&shared[id * apart]);
        pthread_mutex_lock(&lock);
        rounds[id]++;
        pthread_mutex_unlock(&lock);
    }
    return number;
}

int main(int count, char **arguments) {
    const char *how = count > 1 ? arguments[1] : "own";
    if (strcmp(how, "again") == 0) {
        execl("/proc/self/exe", arguments[0], "own", (char *)0);
        return 9;
    }
    apart = strcmp(how, "same") == 0 ? 0 : strcmp(how, "apart") == 0 ? 8 : 1;
    pthread_t both[2];
    for (long id = 0; id < 2; id++) pthread_create(&both[id], 0, work, (void *)id);
    for (long id = 0; id < 2; id++) pthread_join(both[id], 0);
    if (strcmp(how, "forks") == 0) {
        if (fork() == 0) _exit(0);
        wait(0);
    }
    printf("%p %ld %ld\n", (void *)shared, threads[0], threads[1]);
    return rounds[0] && rounds[1] && !beyond[0] ? 7 : 8;
}
