/* Gravity among SIZE bodies by an octree (Barnes and Hut). In each step all threads build
 * one tree, under locks; sum up masses; divide the bodies in the tree's order, by their
 * cost in the step before; compute forces; and move the bodies. The variant `exact`
 * computes the force of every pair of bodies.
 *
 * A cube is divided if it holds more than LEAF bodies, so the tree does not depend on the
 * order of insertion, and the bodies of a leaf are sorted before they are added: the
 * result is the same to the last bit for any number of threads. */
#include "shared.h"

enum { STEPS = 3, LEAF = 8, LOCKS = 128 };

/* A cube counts as one mass from a distance of its width divided by this. Less than the
 * root of 1/3, so that a cube never attracts the bodies in it. */
#define OPENING 0.55
#define SOFTENING 0.05
#define TIME_STEP 0.025

struct body {
    double mass, at[3], speed[3], force[3];
    /* How many pairs were computed for it. */
    int cost;
    int id;
};

/* A leaf, or a cell if the lowest bit is set; 0 for none. */
typedef uintptr_t node;

struct cell {
    double mass, at[3];
    double middle[3], half;
    _Atomic node child[8];
    long cost;
    int count, number;
};

struct leaf {
    double mass, at[3];
    long cost;
    int count;
    struct body *body[LEAF];
};

/* The data of one thread. */
struct share {
    struct cell *cell;
    struct leaf *leaf;
    int cells, leaves, cells_used, leaves_used;
    double low[3], high[3];
    /* Its bodies, in the order of the tree. */
    int begin, end;
};

/* The work of one thread. */
struct tally {
    long bodies, pairs, far, near, opened, inserted, cells, leaves;
};

/* The current tree, its cube, and locks for its cells. */
struct tree {
    struct cell *root;
    double middle[3], half;
    pthread_mutex_t *lock;
};

struct space {
    int threads, bodies;
    double opening;
    struct body **body;
    /* Bodies in the order of the tree. */
    struct body **order;
    struct share **share;
    struct tally **tally;
    struct tree *tree;
    pthread_barrier_t *barrier;
};

static struct space *space;

static int is_cell(node n) { return (n & 1) != 0; }
static struct cell *cell_of(node n) { return (struct cell *)(n & ~(node)1); }
static struct leaf *leaf_of(node n) { return (struct leaf *)n; }
static node node_of_cell(struct cell *cell) { return (node)cell | 1; }

static node child_of(struct cell *cell, int octant) {
    return atomic_load_explicit(&cell->child[octant], memory_order_acquire);
}

static void set_child(struct cell *cell, int octant, node child) {
    atomic_store_explicit(&cell->child[octant], child, memory_order_release);
}

/* --- Memory ----------------------------------------------------------------- */

/* Two clouds that fall towards each other; their common centre rests. */
static void start_body(struct body *body, int id) {
    double radius = 2;
    for (int try = 0; radius > 1; try++) {
        radius = 0;
        for (int d = 0; d < 3; d++) {
            uint64_t random = scramble((uint64_t)id * 1024 + (uint64_t)(try * 3 + d));
            body->at[d] = (double)(random >> 11) * 0x1p-52 - 1;
            radius += body->at[d] * body->at[d];
        }
    }
    body->mass = 1;
    int side = id % 2 == 0 ? 1 : -1;
    for (int d = 0; d < 3; d++) {
        body->at[d] += 1.5 * side;
        body->speed[d] = -0.5 * side;
        body->force[d] = 0;
    }
    body->cost = 1;
    body->id = id;
}

static OPAQUE void make_bodies(void) {
    space->body = NEW(struct body *, space->bodies);
    space->order = NEW(struct body *, space->bodies);
    for (int i = 0; i < space->bodies; i++) {
        space->order[i] = space->body[i] = NEW(struct body, 1);
        start_body(space->body[i], i);
    }
}

/* Zeroed memory. */
static OPAQUE void *zeroed(size_t bytes) {
    return memset(NEW(char, bytes), 0, bytes);
}

static OPAQUE void make_tree(void) {
    space->tree = (struct tree *)zeroed(sizeof(struct tree));
    space->tree->lock = NEW(pthread_mutex_t, LOCKS);
    for (int i = 0; i < LOCKS; i++) pthread_mutex_init(&space->tree->lock[i], NULL);
}

static OPAQUE void make_shares(void) {
    space->share = NEW(struct share *, space->threads);
    space->tally = NEW(struct tally *, space->threads);
    for (int t = 0; t < space->threads; t++)
        space->tally[t] = (struct tally *)zeroed(sizeof(struct tally));
    for (int t = 0; t < space->threads; t++) {
        struct share *share = space->share[t] = NEW(struct share, 1);
        share->begin = (int)((long)space->bodies * t / space->threads);
        share->end = (int)((long)space->bodies * (t + 1) / space->threads);
        share->cells = (share->end - share->begin) / 2 + 128;
        share->leaves = share->end - share->begin + 128;
        share->cell = NEW(struct cell, share->cells);
        share->leaf = NEW(struct leaf, share->leaves);
        share->cells_used = share->leaves_used = 0;
    }
}

static OPAQUE void make_space(struct arguments a) {
    space = NEW(struct space, 1);
    space->threads = a.threads;
    space->bodies = (int)a.size;
    space->opening = a.variant != NULL && strcmp(a.variant, "exact") == 0 ? 0 : OPENING;
    make_bodies();
    make_tree();
    make_shares();
    space->barrier = NEW(pthread_barrier_t, 1);
    pthread_barrier_init(space->barrier, NULL, (unsigned)a.threads);
}

static void full(const char *what) {
    fprintf(stderr, "a thread has no more %s\n", what);
    exit(3);
}

static struct cell *new_cell(struct share *share, const double *middle, double half) {
    if (share->cells_used == share->cells) full("cells");
    struct cell *cell = &share->cell[share->cells_used++];
    for (int d = 0; d < 3; d++) cell->middle[d] = middle[d];
    cell->half = half;
    for (int i = 0; i < 8; i++) atomic_store_explicit(&cell->child[i], 0, memory_order_relaxed);
    cell->number = (int)(scramble((uint64_t)(uintptr_t)cell) % LOCKS);
    return cell;
}

static struct leaf *new_leaf(struct share *share) {
    if (share->leaves_used == share->leaves) full("leaves");
    struct leaf *leaf = &share->leaf[share->leaves_used++];
    leaf->count = 0;
    return leaf;
}

/* --- The tree --------------------------------------------------------------- */

static void find_box(struct share *own) {
    for (int d = 0; d < 3; d++) {
        own->low[d] = INFINITY;
        own->high[d] = -INFINITY;
    }
    for (int i = own->begin; i < own->end; i++) {
        for (int d = 0; d < 3; d++) {
            double at = space->order[i]->at[d];
            if (at < own->low[d]) own->low[d] = at;
            if (at > own->high[d]) own->high[d] = at;
        }
    }
}

/* A cube around all bodies. */
static void make_root(struct share *own) {
    struct tree *tree = space->tree;
    tree->half = 0;
    for (int d = 0; d < 3; d++) {
        double low = INFINITY, high = -INFINITY;
        for (int t = 0; t < space->threads; t++) {
            low = fmin(low, space->share[t]->low[d]);
            high = fmax(high, space->share[t]->high[d]);
        }
        tree->middle[d] = (low + high) / 2;
        tree->half = fmax(tree->half, (high - low) / 2);
    }
    tree->half = tree->half * 1.0001 + 1e-9;
    tree->root = new_cell(own, tree->middle, tree->half);
}

static int octant_of(const struct cell *cell, const struct body *body) {
    int octant = 0;
    for (int d = 0; d < 3; d++) octant |= (body->at[d] >= cell->middle[d]) << d;
    return octant;
}

/* Puts a cell in the place of a full leaf. */
static struct cell *divide(struct share *own, const struct cell *parent, int octant,
                           struct leaf *old) {
    double middle[3], half = parent->half / 2;
    for (int d = 0; d < 3; d++)
        middle[d] = parent->middle[d] + ((octant >> d & 1) != 0 ? half : -half);
    struct cell *cell = new_cell(own, middle, half);
    for (int i = 0; i < old->count; i++) {
        int of = octant_of(cell, old->body[i]);
        node child = child_of(cell, of);
        struct leaf *leaf = child == 0 ? new_leaf(own) : leaf_of(child);
        leaf->body[leaf->count++] = old->body[i];
        if (child == 0) atomic_store_explicit(&cell->child[of], (node)leaf, memory_order_relaxed);
    }
    return cell;
}

/* Puts a body below `cell`; divides a full leaf. */
static int put(struct share *own, struct cell *cell, int octant, struct body *body) {
    node child = child_of(cell, octant);
    if (is_cell(child)) return 0;
    struct leaf *leaf = child == 0 ? new_leaf(own) : leaf_of(child);
    int fits = leaf->count < LEAF;
    if (fits) {
        leaf->body[leaf->count++] = body;
        if (child == 0) set_child(cell, octant, (node)leaf);
    } else {
        set_child(cell, octant, node_of_cell(divide(own, cell, octant, leaf)));
    }
    return fits;
}

static void insert(struct share *own, struct body *body) {
    struct cell *cell = space->tree->root;
    for (;;) {
        int octant = octant_of(cell, body);
        node child = child_of(cell, octant);
        if (is_cell(child)) {
            cell = cell_of(child);
            continue;
        }
        pthread_mutex_t *lock = &space->tree->lock[cell->number];
        pthread_mutex_lock(lock);
        int done = put(own, cell, octant, body);
        pthread_mutex_unlock(lock);
        if (done) return;
    }
}

static void sort_leaf(struct leaf *leaf) {
    for (int i = 1; i < leaf->count; i++) {
        struct body *body = leaf->body[i];
        int at = i;
        for (; at > 0 && leaf->body[at - 1]->id > body->id; at--) leaf->body[at] = leaf->body[at - 1];
        leaf->body[at] = body;
    }
}

static void sum_leaf(struct leaf *leaf) {
    sort_leaf(leaf);
    leaf->mass = 0;
    leaf->cost = 0;
    for (int d = 0; d < 3; d++) leaf->at[d] = 0;
    for (int i = 0; i < leaf->count; i++) {
        const struct body *body = leaf->body[i];
        leaf->mass += body->mass;
        leaf->cost += body->cost;
        for (int d = 0; d < 3; d++) leaf->at[d] += body->mass * body->at[d];
    }
    for (int d = 0; d < 3; d++) leaf->at[d] /= leaf->mass;
}

/* Sums mass, centre and cost of `cell`, and unless `own_only`, of all cells below it first. */
static void sum_cell(struct cell *cell, int own_only) {
    cell->mass = 0;
    cell->cost = 0;
    cell->count = 0;
    for (int d = 0; d < 3; d++) cell->at[d] = 0;
    for (int i = 0; i < 8; i++) {
        node child = child_of(cell, i);
        if (child == 0) continue;
        if (is_cell(child) && !own_only) sum_cell(cell_of(child), 0);
        if (!is_cell(child) && !own_only) sum_leaf(leaf_of(child));
        const double *at = is_cell(child) ? cell_of(child)->at : leaf_of(child)->at;
        double mass = is_cell(child) ? cell_of(child)->mass : leaf_of(child)->mass;
        cell->cost += is_cell(child) ? cell_of(child)->cost : leaf_of(child)->cost;
        cell->count += is_cell(child) ? cell_of(child)->count : leaf_of(child)->count;
        cell->mass += mass;
        for (int d = 0; d < 3; d++) cell->at[d] += mass * at[d];
    }
    for (int d = 0; d < 3; d++) cell->at[d] /= cell->mass;
}

/* The grandchildren of the root are divided among the threads, with everything below. */
static void sum_part(int id) {
    for (int i = 0; i < 64; i++) {
        if (i % space->threads != id) continue;
        node child = child_of(space->tree->root, i / 8);
        if (child == 0) continue;
        if (!is_cell(child)) {
            if (i % 8 == 0) sum_leaf(leaf_of(child));
            continue;
        }
        node grandchild = child_of(cell_of(child), i % 8);
        if (grandchild == 0) continue;
        if (is_cell(grandchild))
            sum_cell(cell_of(grandchild), 0);
        else
            sum_leaf(leaf_of(grandchild));
    }
}

static void sum_top(void) {
    for (int i = 0; i < 8; i++) {
        node child = child_of(space->tree->root, i);
        if (child != 0 && is_cell(child)) sum_cell(cell_of(child), 1);
    }
    sum_cell(space->tree->root, 1);
}

/* --- Dividing the work ------------------------------------------------------ */

/* A part of the tree's order: bodies at which the sum of costs is at least `from` and
 * below `to`. */
struct zone {
    long from, to;
    int begin, end;
};

static void take_body(struct zone *zone, struct body *body, long before, int position) {
    if (before < zone->from || before >= zone->to) return;
    if (zone->end == 0) zone->begin = position;
    zone->end = position + 1;
    space->order[position] = body;
}

static void take_zone(struct zone *zone, node n, long before, int position) {
    if (!is_cell(n)) {
        const struct leaf *leaf = leaf_of(n);
        for (int i = 0; i < leaf->count; i++) {
            take_body(zone, leaf->body[i], before, position++);
            before += leaf->body[i]->cost;
        }
        return;
    }
    struct cell *cell = cell_of(n);
    for (int i = 0; i < 8; i++) {
        node child = child_of(cell, i);
        if (child == 0) continue;
        long cost = is_cell(child) ? cell_of(child)->cost : leaf_of(child)->cost;
        int count = is_cell(child) ? cell_of(child)->count : leaf_of(child)->count;
        if (before < zone->to && before + cost > zone->from)
            take_zone(zone, child, before, position);
        before += cost;
        position += count;
    }
}

static void find_share(int id, struct share *own) {
    struct cell *root = space->tree->root;
    struct zone zone = {root->cost * id / space->threads, root->cost * (id + 1) / space->threads,
                        0, 0};
    take_zone(&zone, node_of_cell(root), 0, 0);
    own->begin = zone.begin;
    own->end = zone.end;
}

/* --- Forces ----------------------------------------------------------------- */

struct pull {
    double force[3];
    int pairs, far, opened;
};

static void add_pull(struct pull *pull, const struct body *body, double mass, const double *at) {
    double distance[3], square = SOFTENING * SOFTENING;
    for (int d = 0; d < 3; d++) {
        distance[d] = at[d] - body->at[d];
        square += distance[d] * distance[d];
    }
    double factor = mass / (square * sqrt(square));
    for (int d = 0; d < 3; d++) pull->force[d] += factor * distance[d];
    pull->pairs++;
}

static int is_far(const struct cell *cell, const struct body *body) {
    double square = 0;
    for (int d = 0; d < 3; d++) {
        double distance = cell->at[d] - body->at[d];
        square += distance * distance;
    }
    double width = 2 * cell->half;
    return width * width < space->opening * space->opening * square;
}

static void walk(struct pull *pull, const struct body *body, node n) {
    if (!is_cell(n)) {
        const struct leaf *leaf = leaf_of(n);
        for (int i = 0; i < leaf->count; i++) {
            const struct body *other = leaf->body[i];
            if (other != body) add_pull(pull, body, other->mass, other->at);
        }
        return;
    }
    struct cell *cell = cell_of(n);
    if (is_far(cell, body)) {
        add_pull(pull, body, cell->mass, cell->at);
        pull->far++;
        return;
    }
    pull->opened++;
    for (int i = 0; i < 8; i++) {
        node child = child_of(cell, i);
        if (child != 0) walk(pull, body, child);
    }
}

static void compute_forces(const struct share *own, struct tally *tally) {
    for (int i = own->begin; i < own->end; i++) {
        struct body *body = space->order[i];
        struct pull pull = {{0, 0, 0}, 0, 0, 0};
        walk(&pull, body, node_of_cell(space->tree->root));
        for (int d = 0; d < 3; d++) body->force[d] = pull.force[d];
        body->cost = pull.pairs;
        tally->bodies++;
        tally->pairs += pull.pairs;
        tally->far += pull.far;
        tally->near += pull.pairs - pull.far;
        tally->opened += pull.opened;
    }
}

static void advance(const struct share *own) {
    /* Masses are 1. The step is such that the clouds stay together for any number of bodies. */
    double step = TIME_STEP / space->bodies;
    for (int i = own->begin; i < own->end; i++) {
        struct body *body = space->order[i];
        for (int d = 0; d < 3; d++) {
            body->speed[d] += step * body->force[d];
            body->at[d] += TIME_STEP * body->speed[d];
        }
    }
}

static void work(int id) {
    struct share *own = space->share[id];
    struct tally *tally = space->tally[id];
    for (int step = 0; step < STEPS; step++) {
        own->cells_used = own->leaves_used = 0;
        find_box(own);
        pthread_barrier_wait(space->barrier);
        if (id == 0) make_root(own);
        pthread_barrier_wait(space->barrier);
        for (int i = own->begin; i < own->end; i++) insert(own, space->order[i]);
        tally->inserted += own->end - own->begin;
        tally->cells += own->cells_used;
        tally->leaves += own->leaves_used;
        pthread_barrier_wait(space->barrier);
        sum_part(id);
        pthread_barrier_wait(space->barrier);
        if (id == 0) sum_top();
        pthread_barrier_wait(space->barrier);
        find_share(id, own);
        pthread_barrier_wait(space->barrier);
        compute_forces(own, tally);
        pthread_barrier_wait(space->barrier);
        if (step + 1 < STEPS) advance(own);
    }
}

/* --- The result ------------------------------------------------------------- */

static uint64_t checksum(void) {
    uint64_t sum = 0;
    for (int i = 0; i < space->bodies; i++)
        for (int d = 0; d < 3; d++) {
            sum = mix(sum, bits_of(space->body[i]->at[d]));
            sum = mix(sum, bits_of(space->body[i]->force[d]));
        }
    return sum;
}

/* Compares the forces with the sums over all pairs: the relative error, as the root of the
 * mean square. */
static double force_error(void) {
    double error = 0, all = 0;
    for (int i = 0; i < space->bodies; i++) {
        const struct body *body = space->body[i];
        struct pull pull = {{0, 0, 0}, 0, 0, 0};
        for (int j = 0; j < space->bodies; j++)
            if (j != i) add_pull(&pull, body, space->body[j]->mass, space->body[j]->at);
        for (int d = 0; d < 3; d++) {
            double off = body->force[d] - pull.force[d];
            error += off * off;
            all += pull.force[d] * pull.force[d];
        }
    }
    return sqrt(error / all);
}

static void print_result(void) {
    double momentum = 0, strength = 0;
    for (int d = 0; d < 3; d++) {
        double sum = 0;
        for (int i = 0; i < space->bodies; i++) {
            sum += space->body[i]->speed[d];
            strength += fabs(space->body[i]->speed[d]);
        }
        momentum = fmax(momentum, fabs(sum));
    }
    long pairs = 0;
    for (int i = 0; i < space->bodies; i++) pairs += space->body[i]->cost;
    print_fact("tree_mass", space->tree->root->mass);
    print_fact("tree_count", space->tree->root->count);
    long bodies = 0, inserted = 0;
    for (int t = 0; t < space->threads; t++) {
        bodies += space->tally[t]->bodies;
        inserted += space->tally[t]->inserted;
    }
    print_fact("pairs", (double)pairs);
    print_fact("bodies", (double)bodies);
    print_fact("inserted", (double)inserted);
    print_fact("force_error", force_error());
    print_fact("momentum", momentum / strength);
}

int main(int argc, char **argv) {
    struct arguments a = read_arguments(argc, argv, LEAF + 1, 1000000);
    make_space(a);
    run_workers(a.threads, work);
    print_checksum(checksum());
    if (wants_check()) print_result();
    return 0;
}
