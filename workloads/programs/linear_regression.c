/* Fits a line through points: each thread adds up the sums of its points in the
 * structure that is its argument. The structures are exactly as large as a line, but
 * malloc does not place them at the start of one.
 * After: Phoenix, as SHERIFF section 6.1 and Figure 5 describe it; 64 bytes and
 * misaligned as in Plastic section 2, Figure 1. */
#include "workload.h"

struct point {
    signed char x, y;
};

struct lreg_args {
    const struct point *points;
    long count;
    long n;
    long SX, SY, SXX, SYY, SXY;
} OWN_LINE;

static struct lreg_args *args;
static struct point *points;
enum { POINTS = 1 << 16 };

/* Not inlined, so that the sums are in memory after each point. */
static OPAQUE void add_point(struct lreg_args *a, struct point p) {
    a->n++;
    a->SX += p.x; /* touch: args */
    a->SXX += p.x * p.x;
    a->SY += p.y;
    a->SYY += p.y * p.y;
    a->SXY += p.x * p.y;
}

static void regress(struct part *part) {
    struct lreg_args *mine = &args[part->id];
    for (long i = part->begin; i < part->end; i++) add_point(mine, mine->points[i % POINTS]);
}

int main(int argc, char **argv) {
    struct arguments a = read_arguments(argc, argv);
    points = malloc(POINTS * sizeof *points);
    for (long i = 0; i < POINTS; i++) {
        points[i].x = (signed char)scramble((uint64_t)i);
        points[i].y = (signed char)(scramble((uint64_t)i) >> 8);
    }
    size_t bytes = (size_t)a.threads * sizeof *args;
    if (IS_FIXED) {
        args = aligned_alloc(LINE, bytes); /* alloc: args_fixed */
    } else {
        lead_heap_to(bytes, 32);
        args = malloc(bytes); /* alloc: args */
    }
    memset(args, 0, bytes);
    for (long i = 0; i < a.threads; i++) args[i].points = points;
    check_layout(((uintptr_t)args % LINE == 0) == IS_FIXED, "args");
    run_threads(a, regress);
    struct lreg_args all = {0};
    for (long i = 0; i < a.threads; i++) {
        all.n += args[i].n;
        all.SX += args[i].SX;
        all.SY += args[i].SY;
        all.SXX += args[i].SXX;
        all.SYY += args[i].SYY;
        all.SXY += args[i].SXY;
    }
    double slope = (double)(all.n * all.SXY - all.SX * all.SY) / (double)(all.n * all.SXX - all.SX * all.SX);
    print_checksum((uint64_t)(all.SXX ^ all.SYY) + (uint64_t)(all.SXY * 3) + (uint64_t)(slope * 1e6));
    free(args);
    free(points);
    return 0;
}
