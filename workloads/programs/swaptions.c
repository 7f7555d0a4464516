/* Prices options on interest swaps by simulating the rates; each option has its own
 * row of random paths, and its result is written once. Hardly any sharing; the fixed
 * variant gives each result a line.
 * After: PARSEC; SHERIFF Table 2 (no object; PTU reported 196 lines). */
#include "workload.h"
#include <math.h>

enum { TRIALS = 200, STEPS = 40 };

struct swaption {
    double strike, years;
    double price, error;
} OWN_LINE;

static struct swaption *swaptions;

static OPAQUE double simulate(const struct swaption *s, uint64_t seed, double *path) {
    path[0] = 0.04;
    for (int t = 1; t < STEPS; t++) {
        seed = scramble(seed + (uint64_t)t);
        double shock = (double)(seed >> 11) * 0x1p-53 - 0.5;
        path[t] = path[t - 1] + 0.002 * shock + 0.01 * (0.045 - path[t - 1]) * s->years;
    }
    double gain = path[STEPS - 1] - s->strike;
    return gain > 0 ? gain * exp(-path[STEPS / 2] * s->years) : 0;
}

static void work(struct part *part) {
    double *path = aligned_alloc(LINE, STEPS * sizeof *path);
    for (long i = part->begin; i < part->end; i++) {
        double sum = 0, squares = 0;
        for (uint64_t trial = 0; trial < TRIALS; trial++) {
            double value = simulate(&swaptions[i], (uint64_t)i * TRIALS + trial, path);
            sum += value;
            squares += value * value;
        }
        swaptions[i].price = sum / TRIALS; /* touch: price */
        swaptions[i].error = sqrt(squares / TRIALS - sum * sum / TRIALS / TRIALS);
    }
    free(path);
}

int main(int argc, char **argv) {
    struct arguments a = read_arguments(argc, argv);
    swaptions = aligned_alloc(LINE, ((size_t)a.size * sizeof *swaptions + LINE - 1) / LINE * LINE); /* alloc: swaptions */
    for (long i = 0; i < a.size; i++)
        swaptions[i] = (struct swaption){0.03 + (double)(i % 20) * 0.001, 1 + (double)(i % 10), 0, 0};
    run_threads(a, work);
    uint64_t sum = 0;
    for (long i = 0; i < a.size; i++)
        sum = sum * 31 + (uint64_t)(swaptions[i].price * 1e12) + (uint64_t)(swaptions[i].error * 1e12);
    print_checksum(sum);
    free(swaptions);
    return 0;
}
