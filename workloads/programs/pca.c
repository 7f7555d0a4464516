/* The covariance of the SIZE rows of a matrix, the core of principal component
 * analysis. A thread takes the next row under a mutex, so neighbouring rows of
 * the result are written by different threads. In the fixed variant each row
 * begins a line.
 * After: Phoenix; SHERIFF Table 2 (no object; PTU reported 45 lines). */
#include "workload.h"

enum { COLUMNS = 256 };

static int32_t *matrix;
static int64_t *covariance;
static long stride;

static struct {
    pthread_mutex_t mutex;
    long next_row;
} queue ON_LINE = {PTHREAD_MUTEX_INITIALIZER, 0};

static long take_row(void) {
    pthread_mutex_lock(&queue.mutex);
    long row = queue.next_row++; /* touch: queue */
    pthread_mutex_unlock(&queue.mutex);
    return row;
}

static OPAQUE void compute_row(long i, long n) {
    for (long j = 0; j <= i && i < n; j++) {
        int64_t sum = 0;
        for (long c = 0; c < COLUMNS; c++)
            sum += (int64_t)matrix[i * COLUMNS + c] * matrix[j * COLUMNS + c];
        covariance[i * stride + j] = sum / (COLUMNS - 1); /* touch: covariance */
    }
}

static void work(struct part *part) {
    for (long i = take_row(); i < part->size; i = take_row()) compute_row(i, part->size);
}

static void subtract_means(long n) {
    for (long i = 0; i < n; i++) {
        int64_t total = 0;
        for (long c = 0; c < COLUMNS; c++) total += matrix[i * COLUMNS + c];
        for (long c = 0; c < COLUMNS; c++) matrix[i * COLUMNS + c] -= (int32_t)(total / COLUMNS);
    }
}

int main(int argc, char **argv) {
    struct arguments a = read_arguments(argc, argv);
    long n = a.size, line = LINE / (long)sizeof *covariance;
    stride = IS_FIXED ? (n + line - 1) / line * line : n;
    matrix = malloc((size_t)n * COLUMNS * sizeof *matrix);
    covariance = aligned_alloc(LINE, ((size_t)(n * stride) * sizeof *covariance + LINE - 1) / LINE * LINE); /* alloc: covariance */
    for (long i = 0; i < n * COLUMNS; i++) matrix[i] = (int32_t)(scramble((uint64_t)i) % 1000);
    subtract_means(n);
    run_threads(a, work);
    uint64_t sum = 0;
    for (long i = 0; i < n; i++)
        for (long j = 0; j <= i; j++) sum = sum * 31 + (uint64_t)covariance[i * stride + j];
    print_checksum(sum);
    free(matrix);
    free(covariance);
    return 0;
}
