/* The product of two matrices of SIZE rows and columns; each thread computes a band of
 * rows. At the border of two bands, a line is written by two threads, once each in the
 * whole run. In the fixed variant each row of the result begins a line.
 * After: Phoenix; SHERIFF Table 2 (no object; PTU reported 468 lines). */
#include "workload.h"

static int32_t *left, *right, *product;
static long stride, product_stride;

static OPAQUE void compute_row(long i, long n) {
    int32_t *row = &product[i * product_stride];
    for (long k = 0; k < n; k++) {
        int32_t factor = left[i * stride + k];
        for (long j = 0; j < n; j++) row[j] += factor * right[k * stride + j]; /* touch: product */
    }
}

static void work(struct part *part) {
    for (long i = part->begin; i < part->end; i++) compute_row(i, part->size);
}

static OPAQUE int32_t *new_matrix(long n, long stride) {
    size_t bytes = ((size_t)(n * stride) * sizeof(int32_t) + LINE - 1) / LINE * LINE;
    int32_t *matrix = aligned_alloc(LINE, bytes); /* alloc: matrix */
    memset(matrix, 0, bytes);
    return matrix;
}

int main(int argc, char **argv) {
    struct arguments a = read_arguments(argc, argv);
    long n = a.size, line = LINE / (long)sizeof(int32_t);
    stride = (n + line - 1) / line * line;
    product_stride = IS_FIXED ? stride : n;
    left = new_matrix(n, stride);
    right = new_matrix(n, stride);
    product = new_matrix(n, product_stride);
    for (long i = 0; i < n; i++)
        for (long j = 0; j < n; j++) {
            left[i * stride + j] = (int32_t)(scramble((uint64_t)(i * n + j)) % 100);
            right[i * stride + j] = (int32_t)(scramble((uint64_t)(i * n + j) + 77) % 100);
        }
    run_threads(a, work);
    uint64_t sum = 0;
    for (long i = 0; i < n; i++)
        for (long j = 0; j < n; j++) sum = sum * 31 + (uint32_t)product[i * product_stride + j];
    print_checksum(sum);
    free(left);
    free(right);
    free(product);
    return 0;
}
