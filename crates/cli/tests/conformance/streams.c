/* Output of many threads through one stream and through descriptors, in whole lines
 * of which none is lost; blocking calls with buffers next to hot data; waits that end
 * by their timeouts and by nothing else. */
#include "check.h"
#include <poll.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/uio.h>

#define LINES (500 * scale)

static int pipes[2], lines[2];
static FILE *out;
/* Buffers on the page of the counters. */
static struct {
    volatile long counters[8];
    char buffer[256];
} near __attribute__((aligned(4096)));

static void *print(void *number) {
    long own = (long)number;
    for (long i = 0; i < LINES; i++) {
        fprintf(out, "%ld %ld %s\n", own, i, "a line that is not cut in two");
        near.counters[own]++;
        heat(own, 200);
    }
    return NULL;
}

static void *collect(void *unused) {
    FILE *in = fdopen(lines[0], "r");
    long next[THREADS] = {0}, whole = 0;
    char line[128], text[64];
    while (fgets(line, sizeof line, in) != NULL) {
        long own, i;
        CHECK(sscanf(line, "%ld %ld %63[^\n]", &own, &i, text) == 3);
        CHECK(own >= 0 && own < THREADS && next[own] == i && strcmp(text, "a line that is not cut in two") == 0);
        next[own]++;
        whole++;
    }
    CHECK(whole == THREADS * LINES && fclose(in) == 0);
    return unused;
}

/* The kernel reads and writes beside the threads' counters. */
static void *receive(void *unused) {
    long sum = 0;
    char first[3], second[sizeof near.buffer];
    for (long i = 0; i < LINES; i++) {
        size_t have = 0;
        while (have < sizeof near.buffer) {
            ssize_t n = i % 2 ? read(pipes[0], near.buffer + have, sizeof near.buffer - have) : 0;
            if (i % 2 == 0) {
                struct iovec parts[2] = {{near.buffer + have, 1}, {near.buffer + have + 1, sizeof near.buffer - have - 1}};
                n = readv(pipes[0], parts, have + 1 < sizeof near.buffer ? 2 : 1);
            }
            CHECK(n > 0);
            have += (size_t)n;
        }
        for (size_t k = 0; k < sizeof near.buffer; k++) CHECK(near.buffer[k] == (char)i);
        near.counters[7]++;
        sum += near.buffer[9];
    }
    (void)first, (void)second;
    *(long *)unused = sum;
    return NULL;
}

static void *send(void *unused) {
    char buffer[sizeof near.buffer];
    for (long i = 0; i < LINES; i++) {
        memset(buffer, (char)i, sizeof buffer);
        CHECK(write(pipes[1], buffer, sizeof buffer) == sizeof buffer);
        near.counters[6]++;
    }
    return unused;
}

/* None of these waits may end early or with an error. */
static void *sleep_well(void *number) {
    struct timespec begin, end, pause = {0, 150000000};
    CHECK(clock_gettime(CLOCK_MONOTONIC, &begin) == 0);
    struct pollfd none = {.fd = -1};
    struct timeval time = {0, 150000};
    struct epoll_event event;
    int epoll;
    switch ((long)number) {
    case 0:
        CHECK(nanosleep(&pause, NULL) == 0);
        break;
    case 1:
        CHECK(poll(&none, 1, 150) == 0);
        break;
    case 2:
        epoll = epoll_create1(EPOLL_CLOEXEC);
        CHECK(epoll >= 0 && epoll_wait(epoll, &event, 1, 150) == 0 && close(epoll) == 0);
        break;
    default:
        CHECK(select(0, NULL, NULL, NULL, &time) == 0);
    }
    CHECK(clock_gettime(CLOCK_MONOTONIC, &end) == 0);
    long passed = (end.tv_sec - begin.tv_sec) * 1000 + (end.tv_nsec - begin.tv_nsec) / 1000000;
    CHECK(passed >= 149);
    return NULL;
}

static void *compute(void *number) {
    heat((long)number, 50000000);
    return NULL;
}

int main(int argc, char **argv) {
    arguments(argc, argv);
    CHECK(pipe(pipes) == 0 && pipe(lines) == 0);
    out = fdopen(lines[1], "w");
    pthread_t collecting, receiving, sending, busy[2];
    DO(pthread_create(&collecting, NULL, collect, NULL));
    in_threads(print);
    CHECK(fclose(out) == 0);
    DO(pthread_join(collecting, NULL));
    for (int i = 0; i < THREADS; i++) CHECK(near.counters[i] == LINES);
    puts("lines: done");
    long sum = 0;
    DO(pthread_create(&receiving, NULL, receive, &sum));
    DO(pthread_create(&sending, NULL, send, NULL));
    DO(pthread_join(receiving, NULL));
    DO(pthread_join(sending, NULL));
    long wanted = 0;
    for (long i = 0; i < LINES; i++) wanted += (char)i;
    CHECK(sum == wanted && near.counters[6] == LINES && near.counters[7] == LINES);
    puts("buffers: done");
    for (long i = 0; i < 2; i++) DO(pthread_create(&busy[i], NULL, compute, (void *)(4 + i)));
    in_threads(sleep_well);
    for (int i = 0; i < 2; i++) DO(pthread_join(busy[i], NULL));
    puts("slept well");
    for (int i = 0; i < THREADS; i++) cool(i, LINES * 200);
    return 0;
}
