/* Compares points with open centres: for each point, a thread adds the saving of
 * opening another centre to its own row of a work area. The rows are padded to 32
 * bytes, which the author took for the size of a line, so two rows lie on one.
 * After: PARSEC; SHERIFF section 6.1 and Table 3 (5.4%). Sums are whole numbers,
 * so they do not depend on the order. */
#include "workload.h"

enum { DIMENSIONS = 8, CENTRES = 3, POINTS = 1 << 12 };
enum { PADDING = IS_FIXED ? 64 : 32 };

static float *points;    /* [POINTS][DIMENSIONS] */
static double *work_mem; /* [THREADS][stride] */
static long stride;

static OPAQUE double distance(const float *a, const float *b) {
    float sum = 0;
    for (int d = 0; d < DIMENSIONS; d++) sum += (a[d] - b[d]) * (a[d] - b[d]);
    return (double)sum;
}

static void work(struct part *part) {
    double *row = &work_mem[part->id * stride];
    const float *candidate = &points[17 * DIMENSIONS];
    for (long i = part->begin; i < part->end; i++) {
        const float *point = &points[i % POINTS * DIMENSIONS];
        int centre = (int)(i % CENTRES);
        double saved = distance(point, &points[centre * DIMENSIONS]) - distance(point, candidate);
        if (saved > 0) row[centre] += saved; /* touch: work_mem */
    }
}

int main(int argc, char **argv) {
    struct arguments a = read_arguments(argc, argv);
    points = malloc(POINTS * DIMENSIONS * sizeof *points);
    for (long i = 0; i < POINTS * DIMENSIONS; i++) points[i] = (float)(scramble((uint64_t)i) % 64);
    stride = (CENTRES * (long)sizeof *work_mem + PADDING - 1) / PADDING * PADDING / (long)sizeof *work_mem;
    size_t bytes = (size_t)(a.threads * stride) * sizeof *work_mem;
    lead_heap_to(bytes, 0);
    work_mem = malloc(bytes); /* alloc: work_mem */
    memset(work_mem, 0, bytes);
    if (a.threads > 1)
        check_layout(on_one_line(&work_mem[0], &work_mem[stride]) != IS_FIXED, "work_mem");
    run_threads(a, work);
    uint64_t sum = 0;
    for (long i = 0; i < a.threads; i++)
        for (int c = 0; c < CENTRES; c++) sum += (uint64_t)(c + 1) * (uint64_t)work_mem[i * stride + c];
    print_checksum(sum);
    free(work_mem);
    free(points);
    return 0;
}
