/* Rarefied gas in a box: SIZE particles fly, and those that meet in a cell of space may
 * collide. Particles are divided among the threads in clumps, in the order of the table
 * and not by position; cells are divided by position. So threads often use neighbouring
 * data.
 *
 * Positions and velocities are whole numbers, and collisions exchange components of
 * velocities, so number, momentum and energy are conserved exactly. Collisions depend on
 * the particles in a cell and not on the order in which they came, so the result is the
 * same for any number of threads. */
#include "shared.h"

enum {
    STEPS = 5,
    /* Particles in a clump. */
    CLUMP = 8,
    /* Particles in a cell, on average. */
    POPULATION = 8,
    /* Particles in a cell, at most. */
    CROWD = 512,
    /* The width of a cell. */
    CELL = 1 << 16,
    NOBODY = -1
};

struct particle {
    int32_t at[3], speed[3];
    /* The next particle in the same cell. */
    int32_t next;
    int32_t cell;
    int32_t collisions;
};

/* The particles that one thread moves. */
struct clump {
    struct particle *particle;
    int32_t count, walls;
    int64_t distance;
};

struct cell {
    _Atomic int32_t first, count;
    int64_t visits, pairs, collisions;
};

struct flow {
    int threads, particles, clumps;
    /* Cells in each direction. */
    int cells[3];
    struct clump **clump;
    /* The cells by their first coordinate. */
    struct cell **slab;
    /* The start of each slab, and the end of the last; particles that flew forwards into
     * it; and collisions by the exchanged components. */
    int64_t *border, *inflow, *kinds;
    /* The components that a collision exchanges. */
    uint8_t *exchange;
    pthread_barrier_t *barrier;
    pthread_mutex_t *lock;
    int64_t impulse, moves, collisions;
};

static struct flow *flow;

static struct particle *particle_of(int id) {
    return &flow->clump[id / CLUMP]->particle[id % CLUMP];
}

static struct cell *cell_of(int number) {
    int slab = flow->cells[1] * flow->cells[2];
    return &flow->slab[number / slab][number % slab];
}

/* --- Memory ----------------------------------------------------------------- */

/* Zeroed numbers. */
static OPAQUE int64_t *new_column(int count) {
    int64_t *column = NEW(int64_t, count);
    for (int i = 0; i < count; i++) column[i] = 0;
    return column;
}

static OPAQUE void make_space(void) {
    /* The box is twice as long as it is wide. */
    int width = 1;
    while (2L * (width + 1) * (width + 1) * (width + 1) * POPULATION <= flow->particles) width++;
    flow->cells[0] = 2 * width;
    flow->cells[1] = flow->cells[2] = width;
    flow->slab = NEW(struct cell *, flow->cells[0]);
    flow->border = new_column(flow->cells[0] + 1);
    flow->inflow = new_column(flow->cells[0]);
    flow->kinds = NEW(int64_t, 8);
    for (int i = 0; i < 8; i++) flow->kinds[i] = 0;
    for (int x = 0; x <= flow->cells[0]; x++) flow->border[x] = (int64_t)x * CELL;
    for (int x = 0; x < flow->cells[0]; x++) {
        flow->slab[x] = NEW(struct cell, width * width);
        for (int i = 0; i < width * width; i++) {
            struct cell *cell = &flow->slab[x][i];
            atomic_init(&cell->first, NOBODY);
            atomic_init(&cell->count, 0);
            cell->visits = cell->pairs = cell->collisions = 0;
        }
    }
}

static void start_particle(struct particle *particle, int id) {
    for (int d = 0; d < 3; d++) {
        uint64_t random = scramble((uint64_t)id * 8 + (uint64_t)d);
        int64_t length = (int64_t)flow->cells[d] * CELL;
        particle->at[d] = (int32_t)((random >> 20) % (uint64_t)length);
        /* Up to half a cell a step, and along the box a quarter more. */
        particle->speed[d] = (int32_t)(random % CELL) - CELL / 2 + (d == 0 ? CELL / 4 : 0);
    }
    particle->next = NOBODY;
    particle->cell = 0;
    particle->collisions = 0;
}

static OPAQUE void make_particles(void) {
    flow->clumps = (flow->particles + CLUMP - 1) / CLUMP;
    flow->clump = NEW(struct clump *, flow->clumps);
    for (int c = 0; c < flow->clumps; c++) {
        struct clump *clump = flow->clump[c] = NEW(struct clump, 1);
        int left = flow->particles - c * CLUMP;
        clump->count = left < CLUMP ? left : CLUMP;
        clump->particle = NEW(struct particle, clump->count);
        clump->walls = 0;
        clump->distance = 0;
        for (int i = 0; i < clump->count; i++) start_particle(&clump->particle[i], c * CLUMP + i);
    }
}

static OPAQUE void make_flow(struct arguments a) {
    flow = NEW(struct flow, 1);
    flow->threads = a.threads;
    flow->particles = (int)a.size;
    flow->impulse = flow->moves = flow->collisions = 0;
    make_space();
    flow->exchange = NEW(uint8_t, 256);
    for (int i = 0; i < 256; i++) flow->exchange[i] = (uint8_t)(i % 4 == 0 ? 0 : i / 4 % 8);
    make_particles();
    flow->lock = NEW(pthread_mutex_t, 1);
    pthread_mutex_init(flow->lock, NULL);
    flow->barrier = NEW(pthread_barrier_t, 1);
    pthread_barrier_init(flow->barrier, NULL, (unsigned)a.threads);
}

/* --- A step ----------------------------------------------------------------- */

/* One step of one particle; the momentum that it gave to the walls. */
static int64_t move(struct particle *particle, struct clump *clump) {
    int64_t impulse = 0;
    int cell = 0;
    for (int d = 0; d < 3; d++) {
        int32_t length = flow->cells[d] * CELL, at = particle->at[d] + particle->speed[d];
        clump->distance += abs(particle->speed[d]);
        if (d > 0) {
            /* A particle that leaves the box here enters it on the other side. */
            at = at < 0 ? at + length : at >= length ? at - length : at;
        } else if (at < 0 || at >= length) {
            at = at < 0 ? -1 - at : 2 * length - 1 - at;
            impulse = 2 * (int64_t)particle->speed[d];
            particle->speed[d] = -particle->speed[d];
            clump->walls++;
        }
        particle->at[d] = at;
        cell = cell * flow->cells[d] + at / CELL;
    }
    particle->cell = cell;
    return impulse;
}

static void enter_cell(struct particle *particle, int id, int32_t from) {
    struct cell *cell = cell_of(particle->cell);
    int slab = particle->cell / (flow->cells[1] * flow->cells[2]);
    if (from < flow->border[slab])
        __atomic_fetch_add(&flow->inflow[slab], 1, __ATOMIC_RELAXED);
    particle->next = atomic_exchange_explicit(&cell->first, id, memory_order_relaxed);
    atomic_fetch_add_explicit(&cell->count, 1, memory_order_relaxed);
}

static void move_all(int id) {
    int64_t impulse = 0, moves = 0;
    for (int c = id; c < flow->clumps; c += flow->threads) {
        struct clump *clump = flow->clump[c];
        for (int i = 0; i < clump->count; i++) {
            int32_t from = clump->particle[i].at[0];
            impulse += move(&clump->particle[i], clump);
            enter_cell(&clump->particle[i], c * CLUMP + i, from);
        }
        moves += clump->count;
    }
    pthread_mutex_lock(flow->lock);
    flow->impulse += impulse;
    flow->moves += moves;
    pthread_mutex_unlock(flow->lock);
}

/* Two particles of equal mass exchange components of their velocities, as in an elastic
 * collision along the line of their centres. */
static int collide(struct particle *a, struct particle *b, uint64_t random) {
    int exchange = flow->exchange[random % 256];
    for (int d = 0; d < 3; d++) {
        if ((exchange >> d & 1) == 0) continue;
        int32_t speed = a->speed[d];
        a->speed[d] = b->speed[d];
        b->speed[d] = speed;
    }
    if (exchange == 0) return 0;
    __atomic_fetch_add(&flow->kinds[exchange], 1, __ATOMIC_RELAXED);
    a->collisions++;
    b->collisions++;
    return 1;
}

/* The particles of a cell in ascending order. */
static int gather(struct cell *cell, int *who) {
    int count = 0;
    for (int id = atomic_load_explicit(&cell->first, memory_order_relaxed); id != NOBODY;
         id = particle_of(id)->next) {
        if (count == CROWD) {
            fputs("too many particles in one cell\n", stderr);
            exit(3);
        }
        int at = count++;
        for (; at > 0 && who[at - 1] > id; at--) who[at] = who[at - 1];
        who[at] = id;
    }
    return count;
}

static void collide_all(int id, int step) {
    int who[CROWD];
    int64_t collisions = 0;
    int slab = flow->cells[1] * flow->cells[2], cells = flow->cells[0] * slab;
    int begin = (int)((long)cells * id / flow->threads);
    int end = (int)((long)cells * (id + 1) / flow->threads);
    for (int c = begin; c < end; c++) {
        struct cell *cell = cell_of(c);
        int count = gather(cell, who), hits = 0;
        for (int i = 0; i + 1 < count; i += 2) {
            uint64_t random = scramble((uint64_t)who[i] << 32 | (uint64_t)who[i + 1] << 8 |
                                       (uint64_t)step);
            hits += collide(particle_of(who[i]), particle_of(who[i + 1]), random);
        }
        cell->visits += atomic_load_explicit(&cell->count, memory_order_relaxed);
        cell->pairs += count / 2;
        cell->collisions += hits;
        collisions += hits;
        atomic_store_explicit(&cell->first, NOBODY, memory_order_relaxed);
        atomic_store_explicit(&cell->count, 0, memory_order_relaxed);
    }
    pthread_mutex_lock(flow->lock);
    flow->collisions += collisions;
    pthread_mutex_unlock(flow->lock);
}

static void work(int id) {
    for (int step = 0; step < STEPS; step++) {
        pthread_barrier_wait(flow->barrier);
        move_all(id);
        pthread_barrier_wait(flow->barrier);
        collide_all(id, step);
    }
}

/* --- The result ------------------------------------------------------------- */

struct sums {
    int64_t momentum[3], energy;
};

static struct sums add_up(void) {
    struct sums sums = {{0, 0, 0}, 0};
    for (int id = 0; id < flow->particles; id++) {
        for (int d = 0; d < 3; d++) {
            int64_t speed = particle_of(id)->speed[d];
            sums.momentum[d] += speed;
            sums.energy += speed * speed;
        }
    }
    return sums;
}

static uint64_t checksum(void) {
    uint64_t sum = 0;
    for (int id = 0; id < flow->particles; id++) {
        const struct particle *p = particle_of(id);
        for (int d = 0; d < 3; d++)
            sum = mix(sum, (uint64_t)(uint32_t)p->at[d] << 32 | (uint32_t)p->speed[d]);
    }
    return sum;
}

static void print_result(struct sums before) {
    struct sums after = add_up();
    int64_t visits = 0, met = 0;
    for (int x = 0; x < flow->cells[0]; x++)
        for (int i = 0; i < flow->cells[1] * flow->cells[2]; i++) {
            visits += flow->slab[x][i].visits;
            met += 2 * flow->slab[x][i].collisions;
        }
    for (int id = 0; id < flow->particles; id++) met -= particle_of(id)->collisions;
    int64_t kinds = -flow->collisions;
    for (int i = 0; i < 8; i++) kinds += flow->kinds[i];
    print_fact("moves", (double)flow->moves);
    print_fact("visits", (double)visits);
    print_fact("collisions", (double)flow->collisions);
    print_fact("collisions_lost", (double)met);
    print_fact("kinds_lost", (double)kinds);
    print_fact("energy_lost", (double)(before.energy - after.energy));
    print_fact("momentum_x_lost",
               (double)(before.momentum[0] - flow->impulse - after.momentum[0]));
    print_fact("momentum_y_lost", (double)(before.momentum[1] - after.momentum[1]));
    print_fact("momentum_z_lost", (double)(before.momentum[2] - after.momentum[2]));
}

int main(int argc, char **argv) {
    struct arguments a = read_arguments(argc, argv, 2 * POPULATION, 10000000);
    make_flow(a);
    struct sums before = wants_check() ? add_up() : (struct sums){{0, 0, 0}, 0};
    run_workers(a.threads, work);
    print_checksum(checksum());
    if (wants_check()) print_result(before);
    return 0;
}
