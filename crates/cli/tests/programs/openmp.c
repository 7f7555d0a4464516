/* OpenMP: each thread adds to a sum of its own, and the sums lie side by side. After each round the
 * threads wait for each other, for which OpenMP's runtime makes system calls of its own. Arguments:
 * threads, rounds, passes over the elements per round. With -DAPART=8 sums have lines of their own. */
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>

#ifndef APART
#define APART 1
#endif

enum { ELEMENTS = 4096 };

int main(int count, char **arguments) {
    int threads = count > 1 ? atoi(arguments[1]) : 2;
    long rounds = count > 2 ? atol(arguments[2]) : 20;
    long passes = count > 3 ? atol(arguments[3]) : 1000;
    /* Volatile, like sums that a compiler can't keep in registers. */
    volatile long *sum = aligned_alloc(64, (size_t)threads * 64);
    long *value = calloc(ELEMENTS, sizeof *value);
    long under_lock = 0, taken = 0;
    for (int thread = 0; thread < threads; thread++) sum[thread * APART] = 0;
    omp_set_dynamic(0);
    for (long round = 0; round < rounds; round++) {
#pragma omp parallel num_threads(threads)
        {
            int own = omp_get_thread_num();
            for (long pass = 0; pass < passes; pass++) {
#pragma omp for schedule(static) nowait
                for (int i = 0; i < ELEMENTS; i++) {
                    value[i] += i & 7;
                    sum[own * APART] += value[i] & 3;
                }
            }
#pragma omp critical
            under_lock += own;
#pragma omp single
            for (int task = 0; task < 4; task++) {
#pragma omp task
                {
#pragma omp atomic
                    taken++;
                }
            }
        }
    }
    for (int thread = 0; thread < threads; thread++) printf("%ld ", sum[thread * APART]);
    printf("%ld %ld\n", under_lock, taken);
    return 0;
}
