/* Prices options by a formula; every thread fills its part of the array of prices.
 * Only at the border of two parts do two threads write one line. The fixed variant
 * divides the array at lines.
 * After: PARSEC; SHERIFF Table 2 (no object). */
#include "workload.h"
#include <math.h>

enum { OPTIONS = 16394, PER_LINE = LINE / sizeof(float) };

struct option {
    float spot, strike, rate, volatility, years;
    int is_put;
};

static struct option *options;
static float *prices;

static double normal(double x) { return 0.5 * erfc(-x * M_SQRT1_2); }

static OPAQUE float price(const struct option *o) {
    double deviation = (double)o->volatility * sqrt((double)o->years);
    double drift = ((double)o->rate + 0.5 * (double)o->volatility * (double)o->volatility) * (double)o->years;
    double d1 = (log((double)o->spot / (double)o->strike) + drift) / deviation, d2 = d1 - deviation;
    double discounted = (double)o->strike * exp(-(double)o->rate * (double)o->years);
    double call = (double)o->spot * normal(d1) - discounted * normal(d2);
    return (float)(o->is_put ? call + discounted - (double)o->spot : call);
}

static void work(struct part *part) {
    long first = OPTIONS * part->id / part->threads, last = OPTIONS * (part->id + 1) / part->threads;
    if (IS_FIXED) {
        first = first / PER_LINE * PER_LINE;
        if (last < OPTIONS) last = last / PER_LINE * PER_LINE;
    }
    for (long round = 0; round < part->size; round++)
        for (long i = first; i < last; i++) prices[i] = price(&options[i]); /* touch: prices */
}

int main(int argc, char **argv) {
    struct arguments a = read_arguments(argc, argv);
    options = malloc(OPTIONS * sizeof *options);
    prices = aligned_alloc(LINE, (OPTIONS * sizeof *prices + LINE - 1) / LINE * LINE); /* alloc: prices */
    for (long i = 0; i < OPTIONS; i++) {
        uint64_t n = scramble((uint64_t)i);
        options[i] = (struct option){.spot = 50 + (float)(n % 100), .strike = 50 + (float)(n >> 8 & 127),
                                     .rate = 0.02f, .volatility = 0.1f + (float)(n >> 16 & 31) * 0.01f,
                                     .years = 0.25f + (float)(n >> 24 & 15) * 0.25f, .is_put = (int)(n >> 32 & 1)};
    }
    run_threads(a, work);
    uint64_t sum = (uint64_t)a.size;
    for (long i = 0; i < OPTIONS; i++) sum = sum * 31 + (uint64_t)((double)prices[i] * 1e6);
    print_checksum(sum);
    free(options);
    free(prices);
    return 0;
}
