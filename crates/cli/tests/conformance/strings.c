/* String instructions on memory that threads share by lines: each thread fills, copies, compares and
 * searches a part of one page, in both directions, with counts from 0 on and with overlaps, while a
 * timer's signal comes at any instruction. A mirror of the part, which plain loops keep, says what
 * must be there. */
#include "check.h"
#include <sys/time.h>

#define OWN 200
#define ROUNDS 40000

static struct {
    unsigned char of[THREADS][OWN];
    unsigned char rest[4096 - THREADS * OWN];
} records __attribute__((aligned(4096)));

static volatile sig_atomic_t ticks;

static void tick(int signal) {
    (void)signal;
    ticks = ticks + 1;
}

struct registers {
    unsigned char *to;
    const unsigned char *from;
    unsigned long count;
    uint64_t value;
    unsigned char equal;
};

#define STRING(name, text)                                                              \
    static void name(struct registers *r, int down) {                                   \
        if (down)                                                                       \
            __asm__ volatile("std\n\t" text "\n\tcld\n\tsete %4"                       \
                             : "+D"(r->to), "+S"(r->from), "+c"(r->count), "+a"(r->value), \
                               "=q"(r->equal)                                           \
                             : : "memory", "cc");                                       \
        else                                                                            \
            __asm__ volatile(text "\n\tsete %4"                                         \
                             : "+D"(r->to), "+S"(r->from), "+c"(r->count), "+a"(r->value), \
                               "=q"(r->equal)                                           \
                             : : "memory", "cc");                                       \
    }

STRING(movsb, "rep movsb")
STRING(movsl, "rep movsl")
STRING(movsq, "rep movsq")
STRING(stosb, "rep stosb")
STRING(stosw, "rep stosw")
STRING(stosq, "rep stosq")
STRING(lodsl, "rep lodsl")
STRING(lodsq, "lodsq")
STRING(cmpsb, "cmpb %%al, %%al\n\trepe cmpsb")
STRING(cmpsq, "cmpb %%al, %%al\n\trepe cmpsq")
STRING(scasb, "cmpb %%al, %%al\n\trepne scasb")
STRING(scasw, "cmpb %%al, %%al\n\trepe scasw")
STRING(one_movsb, "movsb")
STRING(one_stosq, "stosq")

enum kind { MOVE, STORE, LOAD, COMPARE, SCAN };

static const struct {
    void (*execute)(struct registers *, int);
    enum kind kind;
    unsigned width;
    int repeated, until_equal;
} operations[] = {
    {movsb, MOVE, 1, 1, 0},    {movsl, MOVE, 4, 1, 0},     {movsq, MOVE, 8, 1, 0},
    {stosb, STORE, 1, 1, 0},   {stosw, STORE, 2, 1, 0},    {stosq, STORE, 8, 1, 0},
    {lodsl, LOAD, 4, 1, 0},    {lodsq, LOAD, 8, 0, 0},     {cmpsb, COMPARE, 1, 1, 0},
    {cmpsq, COMPARE, 8, 1, 0}, {scasb, SCAN, 1, 1, 1},     {scasw, SCAN, 2, 1, 0},
    {one_movsb, MOVE, 1, 0, 0}, {one_stosq, STORE, 8, 0, 0},
};

/* Byte by byte, in a way that no compiler makes a string instruction of. */
static uint64_t get(const unsigned char *at, unsigned width) {
    uint64_t value = 0;
    for (unsigned n = 0; n < width; n++)
        value |= (uint64_t)*(const volatile unsigned char *)(at + n) << 8 * n;
    return value;
}

static void put(unsigned char *at, unsigned width, uint64_t value) {
    for (unsigned n = 0; n < width; n++)
        *(volatile unsigned char *)(at + n) = (unsigned char)(value >> 8 * n);
}

/* What the processor's manual says. */
static void model(unsigned which, struct registers *r, int down) {
    unsigned width = operations[which].width;
    long step = down ? -(long)width : (long)width;
    uint64_t all = width == 8 ? UINT64_MAX : (1ULL << 8 * width) - 1;
    r->equal = 1;
    for (;;) {
        if (operations[which].repeated && r->count == 0) return;
        switch (operations[which].kind) {
        case MOVE: put(r->to, width, get(r->from, width)); break;
        case STORE: put(r->to, width, r->value); break;
        case LOAD: r->value = get(r->from, width); break;
        case COMPARE: r->equal = get(r->from, width) == get(r->to, width); break;
        case SCAN: r->equal = (r->value & all) == get(r->to, width); break;
        }
        if (operations[which].kind != STORE && operations[which].kind != SCAN) r->from += step;
        if (operations[which].kind != LOAD) r->to += step;
        if (!operations[which].repeated) return;
        r->count--;
        if (operations[which].kind >= COMPARE && r->equal == operations[which].until_equal) return;
    }
}

static unsigned next(unsigned *state, unsigned below) {
    *state = *state * 1664525 + 1013904223;
    return (*state >> 8) % below;
}

static void *work(void *number) {
    long own = (long)number;
    unsigned char *mine = records.of[own], mirror[OWN];
    unsigned state = 1 + (unsigned)own, kinds = sizeof operations / sizeof *operations;
    memcpy(mirror, mine, OWN);
    for (long round = 0; round < ROUNDS * scale; round++) {
        unsigned which = next(&state, kinds), width = operations[which].width;
        unsigned count = next(&state, next(&state, 4) ? 5 : OWN / width);
        unsigned bytes = (count ? count : 1) * width;
        unsigned to = next(&state, OWN - bytes + 1), from = next(&state, OWN - bytes + 1);
        int down = next(&state, 4) == 0;
        uint64_t value = (uint64_t)next(&state, 3) * 0x0101010101010101;
        long last = down ? (long)bytes - width : 0;
        struct registers got = {mine + to + last, mine + from + last, count, value, 0};
        struct registers wanted = {mirror + to + last, mirror + from + last, count, value, 0};
        operations[which].execute(&got, down);
        model(which, &wanted, down);
        CHECK(got.to - mine == wanted.to - mirror && got.from - mine == wanted.from - mirror);
        CHECK(got.count == wanted.count && got.value == wanted.value);
        if (operations[which].kind >= COMPARE) CHECK(got.equal == wanted.equal);
        for (unsigned n = 0; n < OWN; n++) CHECK(mine[n] == mirror[n]);
    }
    return NULL;
}

int main(int argc, char **argv) {
    struct sigaction action = {.sa_handler = tick, .sa_flags = SA_RESTART};
    struct itimerval often = {{0, 700}, {0, 700}};
    arguments(argc, argv);
    CHECK(sigaction(SIGPROF, &action, NULL) == 0);
    CHECK(setitimer(ITIMER_PROF, &often, NULL) == 0);
    for (int n = 0; n < THREADS * OWN; n++) (&records.of[0][0])[n] = (unsigned char)(n % 3);
    in_threads(work);
    unsigned long sum = 0;
    for (int n = 0; n < THREADS * OWN; n++) sum = sum * 31 + (&records.of[0][0])[n];
    printf("%lu\n", sum);
    return 0;
}
