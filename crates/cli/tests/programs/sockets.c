/* Threads wait in calls of sockets that have a limit of time, with a buffer on the page of counters that two
 * others share falsely: whoever would move these stops all threads, finds that the kernel may use the page,
 * and tries again later. No call is interrupted, and each ends by its limit. */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <unistd.h>

enum { CALLS = 4, LEAST = 2 };

static struct {
    volatile long left, right;
    char buffer;
} shared __attribute__((aligned(64)));
static volatile int stop;
static int silent[2], full[2];
static long interrupted[CALLS], ended[CALLS], others[CALLS];

static long call(int which) {
    struct iovec part = {&shared.buffer, 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    switch (which) {
    case 0:
        return recv(silent[0], &shared.buffer, 1, 0);
    case 1:
        return read(silent[0], &shared.buffer, 1);
    case 2:
        return recvmsg(silent[0], &message, 0);
    default:
        return send(full[0], &shared.buffer, 1, 0);
    }
}

static void *wait_again(void *argument) {
    int which = (int)(long)argument;
    while (!stop) {
        long result = call(which);
        if (result < 0 && errno == EINTR)
            interrupted[which]++;
        else if (result < 0 && errno == EAGAIN)
            ended[which]++;
        else
            others[which]++;
    }
    return NULL;
}

static void *count_left(void *nothing) {
    while (!stop)
        shared.left++;
    return nothing;
}

static void *count_right(void *nothing) {
    while (!stop)
        shared.right++;
    return nothing;
}

int main(void) {
    struct timeval limit = {0, 300000};
    socketpair(AF_UNIX, SOCK_STREAM, 0, silent);
    socketpair(AF_UNIX, SOCK_STREAM, 0, full);
    setsockopt(silent[0], SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    setsockopt(full[0], SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    while (send(full[0], &shared.buffer, 1, MSG_DONTWAIT) == 1)
        ;
    pthread_t threads[CALLS + 2];
    for (long which = 0; which < CALLS; which++)
        pthread_create(&threads[which], NULL, wait_again, (void *)which);
    pthread_create(&threads[CALLS], NULL, count_left, NULL);
    pthread_create(&threads[CALLS + 1], NULL, count_right, NULL);
    sleep(2);
    stop = 1;
    for (int t = 0; t < CALLS + 2; t++)
        pthread_join(threads[t], NULL);
    for (int which = 0; which < CALLS; which++)
        printf("interrupted %ld, ended in time %d, others %ld\n", interrupted[which],
               ended[which] >= LEAST, others[which]);
    return 0;
}
