/* A small interpreter of bytecode, one machine for each thread. The state of a
 * machine is 40 bytes, and all machines are in one global array, so the end of
 * one and the start of the next are on the same cache line. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { MAX_THREADS = 16 };
enum opcode { LOAD, ADD, XOR, SHIFT, STORE, LOOP, HALT };

struct instruction {
    uint8_t opcode;
    uint8_t target; /* a register */
    uint8_t source; /* a register, or a small number */
};

struct machine {
    const struct instruction *code;
    uint32_t pc;
    uint32_t loops;
    uint32_t registers[4];
    uint32_t *memory;
#if FIXED
    char padding[64 - 40];
#endif
};

static _Alignas(64) struct machine machines[MAX_THREADS];

static const struct instruction program[] = {
    {LOAD, 1, 0}, {ADD, 0, 1}, {SHIFT, 2, 5},  {XOR, 2, 0},  {STORE, 2, 3},
    {ADD, 3, 2},  {LOAD, 2, 3}, {XOR, 0, 2},   {LOOP, 0, 0}, {HALT, 0, 0},
};

static int step(struct machine *m) {
    struct instruction i = m->code[m->pc++];
    uint32_t *r = m->registers;
    switch (i.opcode) {
    case LOAD: r[i.target & 3] = m->memory[r[i.source & 3] % 64]; break;
    case ADD: r[i.target & 3] += r[i.source & 3]; break;
    case XOR: r[i.target & 3] ^= r[i.source & 3]; break;
    case SHIFT: r[i.target & 3] = r[i.target & 3] << i.source | 1; break;
    case STORE: m->memory[r[i.source & 3] % 64] = r[i.target & 3]; break;
    case LOOP:
        if (--m->loops > 0) m->pc = i.target;
        break;
    case HALT: return 0;
    }
    return 1;
}

static void *run_machine(void *argument) {
    struct machine *m = argument;
    while (step(m)) {
    }
    return NULL;
}

int main(int argc, char **argv) {
    int threads = argc > 1 ? atoi(argv[1]) : 2;
    long loops = argc > 2 ? atol(argv[2]) : 40000000;
    if (threads < 1 || threads > MAX_THREADS || loops < 1) {
        fprintf(stderr, "usage: %s THREADS LOOPS\n", argv[0]);
        return 2;
    }
    pthread_t workers[MAX_THREADS];
    for (int t = 0; t < threads; t++) {
        uint32_t *memory = aligned_alloc(64, 64 * sizeof(uint32_t));
        for (uint32_t k = 0; k < 64; k++)
            memory[k] = (k + (uint32_t)t) * 2654435761u;
        machines[t].code = program;
        machines[t].loops = (uint32_t)loops;
        machines[t].memory = memory;
    }
    for (int t = 0; t < threads; t++)
        pthread_create(&workers[t], NULL, run_machine, &machines[t]);
    uint64_t sum = 0;
    for (int t = 0; t < threads; t++) {
        pthread_join(workers[t], NULL);
        for (int k = 0; k < 4; k++)
            sum = sum * 31 + machines[t].registers[k];
        free(machines[t].memory);
    }
    printf("checksum %016lx\n", (unsigned long)sum);
    return 0;
}
