/* Assigns points to the nearest of some centres and moves each centre to the mean of
 * its points, a few times over; every round starts new threads. The threads write
 * neighbouring parts of one array and set one flag, but seldom.
 * After: Phoenix; SHERIFF section 6.1 (two objects, below its threshold) and 6.4
 * (over 375 threads a second). */
#include "workload.h"

enum { ROUNDS = 60, CENTRES = 16, DIMENSIONS = 8 };

struct sums {
    int64_t total[CENTRES][DIMENSIONS];
    int64_t points[CENTRES];
};

static int32_t *points;     /* [SIZE][DIMENSIONS] */
static uint32_t *nearest;   /* [SIZE] */
static int32_t centres[CENTRES][DIMENSIONS] ON_LINE;
static struct sums *sums_of[MAX_THREADS] ON_LINE;
static int modified ON_LINE;

static OPAQUE uint32_t find_nearest(const int32_t *point) {
    int64_t best = INT64_MAX;
    uint32_t found = 0;
    for (uint32_t c = 0; c < CENTRES; c++) {
        int64_t distance = 0;
        for (int d = 0; d < DIMENSIONS; d++) {
            int64_t delta = point[d] - centres[c][d];
            distance += delta * delta;
        }
        if (distance < best) {
            best = distance;
            found = c;
        }
    }
    return found;
}

static void work(struct part *part) {
    struct sums *sums = aligned_alloc(LINE, (sizeof *sums + LINE - 1) / LINE * LINE);
    memset(sums, 0, sizeof *sums);
    /* The fixed variant divides the array at lines. */
    long grain = IS_FIXED ? LINE / (long)sizeof *nearest : 1;
    long begin = part->begin / grain * grain;
    long end = part->id + 1 == part->threads ? part->end : part->end / grain * grain;
    for (long i = begin; i < end; i++) {
        uint32_t c = find_nearest(&points[i * DIMENSIONS]);
        if (nearest[i] != c) {
            nearest[i] = c; /* touch: nearest */
            __atomic_store_n(&modified, 1, __ATOMIC_RELAXED);
        }
        for (int d = 0; d < DIMENSIONS; d++) sums->total[c][d] += points[i * DIMENSIONS + d];
        sums->points[c]++;
    }
    sums_of[part->id] = sums; /* touch: sums_of */
}

static void move_centres(long threads) {
    for (int c = 0; c < CENTRES; c++)
        for (int d = 0; d < DIMENSIONS; d++) {
            int64_t total = 0, count = 0;
            for (long t = 0; t < threads; t++) {
                total += sums_of[t]->total[c][d];
                count += sums_of[t]->points[c];
            }
            if (count > 0) centres[c][d] = (int32_t)(total / count);
        }
    for (long t = 0; t < threads; t++) free(sums_of[t]);
}

int main(int argc, char **argv) {
    struct arguments a = read_arguments(argc, argv);
    points = malloc((size_t)a.size * DIMENSIONS * sizeof *points);
    nearest = aligned_alloc(LINE, ((size_t)a.size * sizeof *nearest + LINE - 1) / LINE * LINE); /* alloc: nearest */
    for (long i = 0; i < a.size * DIMENSIONS; i++)
        points[i] = (int32_t)(scramble((uint64_t)i) % 1000);
    for (long i = 0; i < a.size; i++) nearest[i] = CENTRES;
    for (int c = 0; c < CENTRES; c++)
        for (int d = 0; d < DIMENSIONS; d++)
            centres[c][d] = (int32_t)(scramble((uint64_t)(c * DIMENSIONS + d) + 1000000) % 1000);
    modified = 1;
    for (int round = 0; round < ROUNDS && modified; round++) {
        modified = 0;
        run_threads(a, work);
        move_centres(a.threads);
    }
    uint64_t sum = 0;
    for (long i = 0; i < a.size; i++) sum = sum * 31 + nearest[i];
    print_checksum(sum);
    free(points);
    free(nearest);
    return 0;
}
