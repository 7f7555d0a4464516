/* A parser of request headers, written as a state machine: each connection has
 * a pointer to the function for its present state. The connections are small
 * and lie in one array, so those of four threads are on one cache line. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_THREADS = 32 };

struct connection {
    void (*step)(struct connection *c, unsigned char byte);
    uint16_t headers;
    uint16_t errors;
    uint32_t hash;
#if FIXED
} __attribute__((aligned(64)));
#else
};
#endif

static void in_name(struct connection *c, unsigned char byte);
static void in_value(struct connection *c, unsigned char byte);
static void after_value(struct connection *c, unsigned char byte);

static void in_name(struct connection *c, unsigned char byte) {
    if (byte == ':')
        c->step = in_value;
    else if (byte == '\n')
        c->errors++;
    else
        c->hash = c->hash * 33 + byte;
}

static void in_value(struct connection *c, unsigned char byte) {
    if (byte == '\r')
        c->step = after_value;
    else
        c->hash = (c->hash << 7 | c->hash >> 25) ^ byte;
}

static void after_value(struct connection *c, unsigned char byte) {
    if (byte == '\n')
        c->headers++;
    else
        c->errors++;
    c->step = in_name;
}

static const char request[] = "Host: example.org\r\nAccept: text/html\r\n"
                              "User-Agent: pair/1.0\r\nbad line\nDate: today\r\n";
static struct connection *connections;
static long requests;

static void *serve(void *argument) {
    struct connection *c = argument;
    size_t length = strlen(request);
    for (long r = 0; r < requests; r++)
        for (size_t i = 0; i < length; i++)
            c->step(c, (unsigned char)request[i]);
    return NULL;
}

int main(int argc, char **argv) {
    int threads = argc > 1 ? atoi(argv[1]) : 4;
    requests = argc > 2 ? atol(argv[2]) : 2000000;
    if (threads < 1 || threads > MAX_THREADS || requests < 1) {
        fprintf(stderr, "usage: %s THREADS REQUESTS\n", argv[0]);
        return 2;
    }
    size_t bytes = (size_t)threads * sizeof *connections;
    connections = aligned_alloc(64, (bytes + 63) / 64 * 64);
    pthread_t workers[MAX_THREADS];
    for (int t = 0; t < threads; t++)
        connections[t] = (struct connection){.step = in_name, .hash = 5381u + (unsigned)t};
    for (int t = 0; t < threads; t++)
        pthread_create(&workers[t], NULL, serve, &connections[t]);
    uint64_t sum = 0;
    for (int t = 0; t < threads; t++) {
        pthread_join(workers[t], NULL);
        struct connection *c = &connections[t];
        sum = sum * 31 + c->hash + 7ul * c->headers + 13ul * c->errors;
    }
    printf("checksum %016lx\n", (unsigned long)sum);
    free(connections);
    return 0;
}
