/* A backup program with two threads: one packs blocks by run length, the other
 * checks blocks. Each keeps a total in a global variable, and other parts of the
 * program print them. The two variables were declared one after the other. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { BLOCK = 48, BLOCKS = 256 };

#if FIXED
_Alignas(64) uint64_t packed_bytes = 0;
_Alignas(64) uint64_t checked_bytes = 0;
#else
uint64_t packed_bytes = 0;
uint64_t checked_bytes = 0;
#endif

struct job {
    const uint8_t *input;
    uint8_t *output;
    long rounds;
    uint32_t sum;
};

static long pack_block(const uint8_t *in, uint8_t *out) {
    long length = 0;
    for (int i = 0; i < BLOCK;) {
        int run = 1;
        while (i + run < BLOCK && in[i + run] == in[i])
            run++;
        out[length++] = (uint8_t)run;
        out[length++] = in[i];
        i += run;
    }
    return length;
}

static void *pack(void *argument) {
    struct job *job = argument;
    for (long r = 0; r < job->rounds; r++)
        for (int b = 0; b < BLOCKS; b++)
            packed_bytes += (uint64_t)pack_block(job->input + b * BLOCK, job->output);
    return NULL;
}

static void *check(void *argument) {
    struct job *job = argument;
    uint32_t sum = 1;
    for (long r = 0; r < job->rounds; r++) {
        for (int b = 0; b < BLOCKS; b++) {
            const uint8_t *in = job->input + b * BLOCK;
            for (int i = 0; i < BLOCK; i++)
                sum = (sum << 1 | sum >> 31) + in[i];
            job->output[b] = (uint8_t)sum;
            checked_bytes += BLOCK;
        }
    }
    job->sum = sum;
    return NULL;
}

int main(int argc, char **argv) {
    int threads = argc > 1 ? atoi(argv[1]) : 2;
    long rounds = argc > 2 ? atol(argv[2]) : 150000;
    if (threads != 2 || rounds < 1) {
        fprintf(stderr, "usage: %s THREADS ROUNDS (it has 2 threads)\n", argv[0]);
        return 2;
    }
    uint8_t *input = malloc(BLOCK * BLOCKS);
    for (int i = 0; i < BLOCK * BLOCKS; i++)
        input[i] = (uint8_t)(i / 12 * 7);
    struct job jobs[2];
    pthread_t packer, checker;
    for (int j = 0; j < 2; j++)
        jobs[j] = (struct job){input, calloc(1, 4096), rounds, 0};
    uint64_t sum = 0;
    pthread_create(&packer, NULL, pack, &jobs[0]);
    pthread_create(&checker, NULL, check, &jobs[1]);
    pthread_join(packer, NULL);
    pthread_join(checker, NULL);
    for (int i = 0; i < 8; i++)
        sum = sum * 31 + jobs[0].output[i];
    sum = sum * 31 + packed_bytes + 7 * checked_bytes + jobs[1].sum;
    printf("checksum %016lx\n", (unsigned long)sum);
    free(jobs[0].output);
    free(jobs[1].output);
    free(input);
    return 0;
}
