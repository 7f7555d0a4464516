/* The scoreboard of a web server, in a shared mapping so that a monitoring
 * process can look at it. Each worker keeps its state and its totals in a slot
 * of 16 bytes, so the slots of four workers are on one cache line. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

enum { MAX_THREADS = 64, BODY = 96 };
enum state { IDLE, READING, WRITING };

struct slot {
    uint32_t state;
    uint32_t requests;
    uint64_t bytes;
#if FIXED
    char padding[48];
#endif
};

static struct slot *board;
static long requests;

static void set_state(struct slot *s, enum state state) {
    __atomic_store_n(&s->state, state, __ATOMIC_RELAXED);
}

/* Makes the body of an answer and returns its length. */
static uint32_t answer(char *body, uint32_t request) {
    uint32_t length = 0;
    while (length < 24 + (request & 31)) {
        body[length] = (char)('a' + (request + length) % 26);
        length++;
    }
    return length;
}

static uint64_t digest_of(uint64_t digest, const char *body, uint32_t length) {
    for (uint32_t i = 0; i + 8 <= length; i += 8)
        digest = (digest ^ (uint64_t)body[i] << 8 ^ (uint64_t)body[i + 7]) * 1099511628211u;
    return digest;
}

static void *serve(void *argument) {
    struct slot *slot = argument;
    char body[BODY];
    uint64_t digest = 1;
    for (long i = 0; i < requests; i++) {
        set_state(slot, READING);
        uint32_t request = (uint32_t)i * 2654435761u >> 8;
        uint32_t length = answer(body, request);
        set_state(slot, WRITING);
        digest = digest_of(digest, body, length);
        slot->requests++;
        slot->bytes += length;
        set_state(slot, IDLE);
    }
    return (void *)(uintptr_t)digest;
}

int main(int argc, char **argv) {
    int threads = argc > 1 ? atoi(argv[1]) : 4;
    requests = argc > 2 ? atol(argv[2]) : 8000000;
    if (threads < 1 || threads > MAX_THREADS || requests < 1) {
        fprintf(stderr, "usage: %s THREADS REQUESTS\n", argv[0]);
        return 2;
    }
    size_t bytes = (size_t)threads * sizeof *board;
    board = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (board == MAP_FAILED) {
        perror("mmap");
        return 1;
    }
    pthread_t workers[MAX_THREADS];
    for (int t = 0; t < threads; t++)
        pthread_create(&workers[t], NULL, serve, &board[t]);
    uint64_t sum = 0;
    for (int t = 0; t < threads; t++) {
        void *digest;
        pthread_join(workers[t], &digest);
        sum = sum * 31 + board[t].requests + 7 * board[t].bytes + (uintptr_t)digest;
    }
    printf("checksum %016lx\n", (unsigned long)sum);
    munmap(board, bytes);
    return 0;
}
