/* Sparse Cholesky factorisation L L' = A by panels of columns with equal structure
 * (supernodes). Panels are divided among the threads, each of which has a queue of its
 * own, deepest in the elimination tree first. A panel waits for those that update it, by
 * a semaphore that each of them raises. A is the five-point Laplacian of a SIZE by SIZE
 * grid, ordered by nested dissection: the top separators give large panels, the bottom of
 * the tree many small tasks at once.
 *
 * Each entry gets its updates in the order of the panels, so L is the same to the last
 * bit for any number of threads. */
#include "shared.h"

/* The most columns of a panel. */
enum { WIDEST = 16, MOST_ROWS = 4096 };

/* The lower triangle by columns. */
struct matrix {
    int n;
    int *start, *row;
    double *value;
};

struct panel {
    /* First column and number of columns. */
    int first, width;
    /* Rows, its own columns among them: `rows[row_at ..]`. */
    int row_at, rows;
    /* How many panels update it, and the longest chain of updates before it. */
    int sources, level;
    int owner;
    /* Its columns one after the other, `rows` values each. */
    long value_at;
};

/* The panels of one owner, in an order without deadlock: those that update a panel are
 * on lower levels. */
struct queue {
    int *panel;
    int first, end;
};

/* The work of a thread. */
struct account {
    long tasks, updates, operations;
};

/* A list of panels for each panel. */
struct lists {
    int *start, *panel;
};

struct problem {
    int threads, side, n, panels;
    struct matrix *matrix;
    /* Position of each grid point in the order of elimination. */
    int *place;
    /* The panel of each column. */
    int *panel_of;
    struct panel *panel;
    int *row;
    double *value;
    long values;
    /* By panel: raised by each source that is done. */
    sem_t *done;
    /* By level: how many panels are done. */
    int *finished;
    int levels;
    /* The panels that update a panel, and those that it updates. */
    struct lists *sources, *targets;
    struct queue **queue;
    struct account **account;
};

static struct problem *problem;

/* Zeroed numbers. */
static OPAQUE int *new_ints(long count) {
    int *ints = NEW(int, count);
    for (long i = 0; i < count; i++) ints[i] = 0;
    return ints;
}

/* --- The matrix ------------------------------------------------------------- */

/* Numbers the points of a rectangle: both halves, then their separator. */
static void dissect(int *place, int side, int x, int y, int w, int h, int *next) {
    if (w <= 0 || h <= 0) return;
    if (w <= 2 && h <= 2) {
        for (int j = y; j < y + h; j++)
            for (int i = x; i < x + w; i++) place[j * side + i] = (*next)++;
        return;
    }
    if (w >= h) {
        int middle = x + w / 2;
        dissect(place, side, x, y, middle - x, h, next);
        dissect(place, side, middle + 1, y, x + w - middle - 1, h, next);
        for (int j = y; j < y + h; j++) place[j * side + middle] = (*next)++;
    } else {
        int middle = y + h / 2;
        dissect(place, side, x, y, w, middle - y, next);
        dissect(place, side, x, middle + 1, w, y + h - middle - 1, next);
        for (int i = x; i < x + w; i++) place[middle * side + i] = (*next)++;
    }
}

static OPAQUE struct matrix *new_matrix(int n, int entries) {
    struct matrix *matrix = NEW(struct matrix, 1);
    matrix->n = n;
    matrix->start = new_ints(n + 1);
    matrix->row = new_ints(entries);
    matrix->value = NEW(double, entries);
    return matrix;
}

/* The Laplacian, with its points in the order of `place`. */
static struct matrix *grid_matrix(int side, const int *place) {
    int n = side * side;
    struct matrix *matrix = new_matrix(n, n + 2 * side * (side - 1));
    int *point = NEW(int, n);
    for (int p = 0; p < n; p++) point[place[p]] = p;
    int next = 0;
    for (int column = 0; column < n; column++) {
        matrix->start[column] = next;
        int p = point[column], x = p % side, y = p / side;
        int beside[4] = {x > 0 ? p - 1 : -1, x + 1 < side ? p + 1 : -1, y > 0 ? p - side : -1,
                         y + 1 < side ? p + side : -1};
        matrix->row[next] = column;
        matrix->value[next++] = 4;
        for (int i = 0; i < 4; i++) {
            if (beside[i] < 0 || place[beside[i]] < column) continue;
            matrix->row[next] = place[beside[i]];
            matrix->value[next++] = -1;
        }
    }
    matrix->start[n] = next;
    free(point);
    return matrix;
}

/* --- The structure of L ----------------------------------------------------- */

static int ascending(const void *a, const void *b) {
    int x = *(const int *)a, y = *(const int *)b;
    return (x > y) - (x < y);
}

/* The structure of L, column by column: below the diagonal, the rows of A and those of all
 * columns whose first entry below the diagonal is in this row. */
struct structure {
    long *start;
    int *row;
};

static struct structure find_structure(const struct matrix *a) {
    int n = a->n;
    struct structure l = {NEW(long, n + 1), NULL};
    int *first_child = NEW(int, n), *sibling = NEW(int, n), *mark = NEW(int, n);
    for (int j = 0; j < n; j++) first_child[j] = mark[j] = -1;
    long room = 16L * n, next = 0;
    l.row = NEW(int, room);
    for (int j = 0; j < n; j++) {
        l.start[j] = next;
        if (room - next < n) {
            room = 2 * room + n;
            l.row = (int *)checked(realloc(l.row, (size_t)room * sizeof(int)));
        }
        l.row[next++] = j;
        mark[j] = j;
        for (int e = a->start[j]; e < a->start[j + 1]; e++) {
            if (mark[a->row[e]] == j) continue;
            mark[a->row[e]] = j;
            l.row[next++] = a->row[e];
        }
        for (int child = first_child[j]; child >= 0; child = sibling[child]) {
            for (long e = l.start[child]; e < l.start[child + 1]; e++) {
                int i = l.row[e];
                if (i <= j || mark[i] == j) continue;
                mark[i] = j;
                l.row[next++] = i;
            }
        }
        l.start[j + 1] = next;
        qsort(l.row + l.start[j], (size_t)(next - l.start[j]), sizeof(int), ascending);
        if (next - l.start[j] > 1) {
            int parent = l.row[l.start[j] + 1];
            sibling[j] = first_child[parent];
            first_child[parent] = j;
        }
    }
    free(first_child);
    free(sibling);
    free(mark);
    return l;
}

/* Whether column j has the structure of the column before it, without its diagonal. */
static int continues(const struct structure *l, int j) {
    long before = l->start[j] - l->start[j - 1], own = l->start[j + 1] - l->start[j];
    return before == own + 1 && before > 1 && l->row[l->start[j - 1] + 1] == j;
}

static OPAQUE void make_panels(struct problem *p, const struct structure *l) {
    int n = p->n;
    p->panel_of = new_ints(n);
    p->panels = 0;
    for (int j = 0, width = 0; j < n; j++) {
        width = j > 0 && width < WIDEST && continues(l, j) ? width + 1 : 1;
        p->panels += width == 1;
        p->panel_of[j] = p->panels - 1;
    }
    p->panel = NEW(struct panel, p->panels);
    int rows = 0;
    p->values = 0;
    for (int j = 0; j < n; j++) {
        struct panel *panel = &p->panel[p->panel_of[j]];
        if (j == 0 || p->panel_of[j - 1] != p->panel_of[j]) {
            panel->first = j;
            panel->width = 0;
            panel->sources = panel->level = 0;
            panel->owner = p->panel_of[j] % p->threads;
            panel->row_at = rows;
            panel->rows = (int)(l->start[j + 1] - l->start[j]);
            panel->value_at = p->values;
            rows += panel->rows;
        }
        panel->width++;
        p->values += panel->rows;
    }
    p->row = new_ints(rows);
    for (int s = 0; s < p->panels; s++) {
        struct panel *panel = &p->panel[s];
        if (panel->rows > MOST_ROWS) {
            fputs("the grid is too large\n", stderr);
            exit(2);
        }
        for (int i = 0; i < panel->rows; i++)
            p->row[panel->row_at + i] = l->row[l->start[panel->first] + i];
    }
}

/* --- Dependencies ----------------------------------------------------------- */

static OPAQUE struct lists *new_lists(int panels, int entries) {
    struct lists *lists = NEW(struct lists, 1);
    lists->start = new_ints(panels + 1);
    lists->panel = new_ints(entries);
    return lists;
}

/* The panels that `s` updates, ascending; stores them in `found` unless it is NULL. */
static int targets_of(const struct problem *p, int s, int *found) {
    const struct panel *panel = &p->panel[s];
    int count = 0, last = s;
    for (int i = panel->width; i < panel->rows; i++) {
        int target = p->panel_of[p->row[panel->row_at + i]];
        if (target == last) continue;
        last = target;
        if (found != NULL) found[count] = target;
        count++;
    }
    return count;
}

static void make_lists(struct problem *p) {
    int entries = 0;
    for (int s = 0; s < p->panels; s++) entries += targets_of(p, s, NULL);
    p->targets = new_lists(p->panels, entries);
    p->sources = new_lists(p->panels, entries);
    int next = 0;
    for (int s = 0; s < p->panels; s++) {
        p->targets->start[s] = next;
        next += targets_of(p, s, p->targets->panel + next);
    }
    p->targets->start[p->panels] = next;
    for (int e = 0; e < entries; e++) p->panel[p->targets->panel[e]].sources++;
    for (int s = 0, at = 0; s <= p->panels; s++) {
        p->sources->start[s] = at;
        if (s < p->panels) at += p->panel[s].sources;
    }
    int *filled = NEW(int, p->panels);
    for (int s = 0; s < p->panels; s++) filled[s] = p->sources->start[s];
    for (int s = 0; s < p->panels; s++)
        for (int e = p->targets->start[s]; e < p->targets->start[s + 1]; e++) {
            struct panel *target = &p->panel[p->targets->panel[e]];
            if (target->level <= p->panel[s].level) target->level = p->panel[s].level + 1;
            p->sources->panel[filled[p->targets->panel[e]]++] = s;
        }
    free(filled);
}

/* --- Queues ----------------------------------------------------------------- */

static OPAQUE void make_queues(struct problem *p) {
    p->levels = 1;
    for (int s = 0; s < p->panels; s++)
        if (p->panel[s].level >= p->levels) p->levels = p->panel[s].level + 1;
    p->finished = new_ints(p->levels);
    p->done = NEW(sem_t, p->panels);
    for (int s = 0; s < p->panels; s++) sem_init(&p->done[s], 0, 0);
    p->queue = NEW(struct queue *, p->threads);
    p->account = NEW(struct account *, p->threads);
    for (int t = 0; t < p->threads; t++) {
        struct queue *queue = p->queue[t] = NEW(struct queue, 1);
        queue->first = queue->end = 0;
        queue->panel = new_ints(p->panels / p->threads + 1);
        struct account *account = p->account[t] = NEW(struct account, 1);
        account->tasks = account->updates = account->operations = 0;
    }
    for (int level = 0; level < p->levels; level++)
        for (int s = 0; s < p->panels; s++) {
            if (p->panel[s].level != level) continue;
            struct queue *queue = p->queue[p->panel[s].owner];
            queue->panel[queue->end++] = s;
        }
}

static OPAQUE void fill_values(struct problem *p) {
    p->value = NEW(double, p->values);
    for (long i = 0; i < p->values; i++) p->value[i] = 0;
    for (int j = 0; j < p->n; j++) {
        const struct panel *panel = &p->panel[p->panel_of[j]];
        double *column = p->value + panel->value_at + (long)(j - panel->first) * panel->rows;
        const int *row = p->row + panel->row_at;
        for (int e = p->matrix->start[j]; e < p->matrix->start[j + 1]; e++) {
            int i = 0;
            while (row[i] != p->matrix->row[e]) i++;
            column[i] = p->matrix->value[e];
        }
    }
}

/* --- The numbers ------------------------------------------------------------ */

/* Subtracts the contribution of panel `from` from panel `to`. */
static long update(struct problem *p, const struct panel *to, const struct panel *from) {
    int place[MOST_ROWS];
    const int *to_row = p->row + to->row_at, *from_row = p->row + from->row_at;
    int begin = from->width, end, at = 0;
    while (from_row[begin] < to->first) begin++;
    for (end = begin; end < from->rows && from_row[end] < to->first + to->width; end++) continue;
    /* All further rows of `from` are rows of `to`. */
    for (int i = begin; i < from->rows; i++) {
        while (to_row[at] != from_row[i]) at++;
        place[i] = at;
    }
    const double *source = p->value + from->value_at;
    for (int c = begin; c < end; c++) {
        double *column = p->value + to->value_at + (long)place[c] * to->rows;
        for (int i = c; i < from->rows; i++) {
            double sum = 0;
            for (int k = 0; k < from->width; k++)
                sum += source[(long)k * from->rows + i] * source[(long)k * from->rows + c];
            column[place[i]] -= sum;
        }
    }
    return (long)(end - begin) * (from->rows - begin) * from->width;
}

/* Factors the columns of a panel after all its updates. */
static long factor(struct problem *p, const struct panel *panel) {
    double *value = p->value + panel->value_at;
    for (int c = 0; c < panel->width; c++) {
        double *column = value + (long)c * panel->rows;
        for (int k = 0; k < c; k++) {
            const double *before = value + (long)k * panel->rows;
            double factor = before[c];
            for (int i = c; i < panel->rows; i++) column[i] -= factor * before[i];
        }
        double root = sqrt(column[c]);
        column[c] = root;
        for (int i = c + 1; i < panel->rows; i++) column[i] /= root;
    }
    return (long)panel->width * panel->width * panel->rows / 2;
}

/* Waits for all panels that update panel `s`. */
static void await_sources(struct problem *p, int s) {
    for (int i = 0; i < p->panel[s].sources; i++)
        while (sem_wait(&p->done[s]) != 0) continue;
}

/* Raises the semaphores of the panels that wait for `s`. */
static void announce(struct problem *p, int s) {
    for (int e = p->targets->start[s]; e < p->targets->start[s + 1]; e++)
        sem_post(&p->done[p->targets->panel[e]]);
}

static void work(int id) {
    struct problem *p = problem;
    struct queue *queue = p->queue[id];
    struct account *account = p->account[id];
    while (queue->first < queue->end) {
        int s = queue->panel[queue->first++];
        const struct panel *panel = &p->panel[s];
        long operations = 0;
        await_sources(p, s);
        for (int e = p->sources->start[s]; e < p->sources->start[s + 1]; e++)
            operations += update(p, panel, &p->panel[p->sources->panel[e]]);
        operations += factor(p, panel);
        announce(p, s);
        __atomic_fetch_add(&p->finished[panel->level], 1, __ATOMIC_RELAXED);
        account->tasks++;
        account->updates += panel->sources;
        account->operations += operations;
    }
}

/* --- The result ------------------------------------------------------------- */

/* out = L in, or L' in. */
static void multiply(const struct problem *p, int transposed, const double *in, double *out) {
    for (int j = 0; j < p->n; j++) out[j] = 0;
    for (int j = 0; j < p->n; j++) {
        const struct panel *panel = &p->panel[p->panel_of[j]];
        const double *column = p->value + panel->value_at + (long)(j - panel->first) * panel->rows;
        for (int i = j - panel->first; i < panel->rows; i++) {
            int row = p->row[panel->row_at + i];
            if (transposed)
                out[j] += column[i] * in[row];
            else
                out[row] += column[i] * in[j];
        }
    }
}

/* The largest entry of (L L' - A) x for a vector x of entries up to 1. */
static double residual(const struct problem *p) {
    double *x = (double *)checked(calloc((size_t)p->n, sizeof(double)));
    double *y = NEW(double, p->n), *z = NEW(double, p->n);
    for (int i = 0; i < p->n; i++) x[i] = (double)(scramble((uint64_t)i) >> 11) * 0x1p-52 - 1;
    multiply(p, 1, x, y);
    multiply(p, 0, y, z);
    const struct matrix *a = p->matrix;
    for (int j = 0; j < p->n; j++) {
        for (int e = a->start[j]; e < a->start[j + 1]; e++) {
            z[a->row[e]] -= a->value[e] * x[j];
            if (a->row[e] != j) z[j] -= a->value[e] * x[a->row[e]];
        }
    }
    double worst = 0;
    for (int i = 0; i < p->n; i++) worst = fmax(worst, fabs(z[i]));
    free(x);
    free(y);
    free(z);
    return worst;
}

/* The checksum of L in the order of its columns. */
static uint64_t checksum(const struct problem *p) {
    uint64_t sum = 0;
    for (long i = 0; i < p->values; i++) sum = mix(sum, bits_of(p->value[i]));
    return sum;
}

static void print_result(const struct problem *p) {
    double log_determinant = 0;
    long tasks = 0, finished = 0;
    for (int j = 0; j < p->n; j++) {
        const struct panel *panel = &p->panel[p->panel_of[j]];
        int c = j - panel->first;
        log_determinant += 2 * log(p->value[panel->value_at + (long)c * panel->rows + c]);
    }
    for (int t = 0; t < p->threads; t++) tasks += p->account[t]->tasks;
    print_fact("panels", p->panels);
    for (int level = 0; level < p->levels; level++) finished += p->finished[level];
    print_fact("tasks", (double)tasks);
    print_fact("finished", (double)finished);
    print_fact("log_determinant", log_determinant);
    print_fact("residual", residual(p));
}

int main(int argc, char **argv) {
    struct arguments a = read_arguments(argc, argv, 2, 512);
    struct problem *p = problem = NEW(struct problem, 1);
    p->threads = a.threads;
    p->side = (int)a.size;
    p->n = p->side * p->side;
    p->place = new_ints(p->n);
    int next = 0;
    dissect(p->place, p->side, 0, 0, p->side, p->side, &next);
    p->matrix = grid_matrix(p->side, p->place);
    struct structure l = find_structure(p->matrix);
    make_panels(p, &l);
    free(l.start);
    free(l.row);
    make_lists(p);
    fill_values(p);
    make_queues(p);
    run_workers(p->threads, work);
    print_checksum(checksum(p));
    if (wants_check()) print_result(p);
    return 0;
}
