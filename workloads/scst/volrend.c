/* A volume of SIZE cubed voxels seen from a few sides: rays are cast in parallel through
 * each pixel, skip empty cubes by an octree, and end at opaque voxels. The image is
 * divided into tiles; each thread has a queue of them and takes from the other queues
 * when its own is empty. The variants `empty` and `full` have only transparent or only
 * opaque voxels; the default is a few shells.
 *
 * Each pixel is computed by itself, so the image does not depend on the threads. */
#include "shared.h"

enum {
    FRAMES = 4,
    TILE = 8,
    /* Levels of the octree at most; its leaves are cubes of four voxels a side. */
    LEVELS = 10,
    LEAF = 4,
    /* Brightness of voxels without a surface. */
    AMBIENT = 96
};

/* The largest density in each cube of one size. */
struct level {
    int side, width;
    uint8_t *largest;
};

/* The tiles of one thread. */
struct queue {
    pthread_mutex_t lock;
    int next, end;
};

struct tally {
    long rays, hits, opaque, samples, skips, levels, tiles, taken, frames;
};

/* The start and the direction of rays. */
struct view {
    double ahead[3], right[3], down[3];
};

struct scene {
    int threads, side, levels, width, tiles;
    uint8_t *density, *brightness;
    /* By density: the part of the light that is absorbed. */
    float *opacity;
    struct level *level;
    uint8_t *image;
    /* How often each tile was drawn: once a frame. */
    uint8_t *drawn;
    struct queue **queue;
    struct tally **tally;
    struct view *view;
    pthread_barrier_t *barrier;
};

static struct scene *scene;

/* --- Memory ----------------------------------------------------------------- */

static uint8_t shells(int x, int y, int z) {
    double side = scene->side, square = 0;
    int at[3] = {x, y, z};
    for (int d = 0; d < 3; d++) {
        double off = (at[d] + 0.5) / side - 0.5 - 0.06 * d;
        square += off * off;
    }
    double radius = sqrt(square);
    if (radius < 0.14) return 255;
    if (radius > 0.22 && radius < 0.26) return 90;
    if (radius > 0.34 && radius < 0.37 && x * 2 > scene->side) return 40;
    return 0;
}

/* Zeroed bytes. */
static OPAQUE uint8_t *new_bytes(long count) {
    uint8_t *bytes = NEW(uint8_t, count);
    for (long i = 0; i < count; i++) bytes[i] = 0;
    return bytes;
}

static OPAQUE void make_volume(const char *variant) {
    long side = scene->side, voxels = side * side * side;
    scene->density = NEW(uint8_t, voxels);
    scene->brightness = new_bytes(voxels);
    int full = variant != NULL && strcmp(variant, "full") == 0;
    int empty = variant != NULL && strcmp(variant, "empty") == 0;
    for (int z = 0; z < side; z++)
        for (int y = 0; y < side; y++)
            for (int x = 0; x < side; x++)
                scene->density[(z * side + y) * side + x] =
                    empty ? 0 : full ? 255 : shells(x, y, z);
    scene->opacity = NEW(float, 256);
    for (int i = 0; i < 256; i++) scene->opacity[i] = (float)i / 255;
}

static OPAQUE void make_octree(void) {
    scene->level = NEW(struct level, LEVELS);
    scene->levels = 0;
    for (int width = LEAF; scene->levels < LEVELS; width *= 2) {
        struct level *level = &scene->level[scene->levels++];
        level->width = width;
        level->side = (scene->side + width - 1) / width;
        level->largest = new_bytes((long)level->side * level->side * level->side);
        if (level->side == 1) break;
    }
}

static OPAQUE void make_image(void) {
    /* Wide enough for the volume's diagonal, whatever the side. */
    scene->width = (2 * scene->side + TILE - 1) / TILE * TILE;
    int row = scene->width / TILE;
    scene->tiles = row * row;
    scene->drawn = NEW(uint8_t, scene->tiles);
    memset(scene->drawn, 0, (size_t)scene->tiles);
    scene->image = new_bytes((long)scene->width * scene->width);
}

static OPAQUE void make_queues(void) {
    scene->queue = NEW(struct queue *, scene->threads);
    scene->tally = NEW(struct tally *, scene->threads);
    for (int t = 0; t < scene->threads; t++) {
        struct queue *queue = scene->queue[t] = NEW(struct queue, 1);
        pthread_mutex_init(&queue->lock, NULL);
        queue->next = queue->end = 0;
        scene->tally[t] = NEW(struct tally, 1);
        memset(scene->tally[t], 0, sizeof(struct tally));
    }
    scene->view = NEW(struct view, 1);
    scene->barrier = NEW(pthread_barrier_t, 1);
    pthread_barrier_init(scene->barrier, NULL, (unsigned)scene->threads);
}

/* --- Derived from the volume ------------------------------------------------ */

static int density_at(int x, int y, int z) {
    long side = scene->side;
    /* Beyond its border, the volume continues with the values there. */
    int last = scene->side - 1;
    x = x < 0 ? 0 : x > last ? last : x;
    y = y < 0 ? 0 : y > last ? last : y;
    z = z < 0 ? 0 : z > last ? last : z;
    return scene->density[(z * side + y) * side + x];
}

/* The more a surface faces upwards and forwards, the brighter it is. */
static void shade(int z) {
    long side = scene->side;
    for (int y = 0; y < side; y++)
        for (int x = 0; x < side; x++) {
            double slope[3] = {density_at(x + 1, y, z) - density_at(x - 1, y, z),
                               density_at(x, y + 1, z) - density_at(x, y - 1, z),
                               density_at(x, y, z + 1) - density_at(x, y, z - 1)};
            double length = sqrt(slope[0] * slope[0] + slope[1] * slope[1] + slope[2] * slope[2]);
            double facing = length > 0 ? (slope[1] + slope[2]) / (length * 1.5) : 0;
            scene->brightness[(z * side + y) * side + x] =
                (uint8_t)(AMBIENT + 159 * (facing > 0 ? facing : 0));
        }
}

static uint8_t largest_voxel(int x, int y, int z) {
    long side = scene->side;
    uint8_t largest = 0;
    for (int k = z; k < z + LEAF && k < side; k++)
        for (int j = y; j < y + LEAF && j < side; j++)
            for (int i = x; i < x + LEAF && i < side; i++) {
                uint8_t density = scene->density[(k * side + j) * side + i];
                if (density > largest) largest = density;
            }
    return largest;
}

static uint8_t largest_below(const struct level *below, int x, int y, int z) {
    uint8_t largest = 0;
    for (int k = 2 * z; k < 2 * z + 2 && k < below->side; k++)
        for (int j = 2 * y; j < 2 * y + 2 && j < below->side; j++)
            for (int i = 2 * x; i < 2 * x + 2 && i < below->side; i++) {
                uint8_t value = below->largest[(k * below->side + j) * below->side + i];
                if (value > largest) largest = value;
            }
    return largest;
}

/* One layer of one level of the octree. */
static void sum_layer(int number, int z) {
    const struct level *level = &scene->level[number];
    for (int y = 0; y < level->side; y++)
        for (int x = 0; x < level->side; x++)
            level->largest[(z * level->side + y) * level->side + x] =
                number == 0 ? largest_voxel(x * LEAF, y * LEAF, z * LEAF)
                            : largest_below(level - 1, x, y, z);
}

struct part {
    int begin, end;
};

/* One thread's part of `count` items. */
static struct part part_of(int count, int id) {
    return (struct part){(int)((long)count * id / scene->threads),
                         (int)((long)count * (id + 1) / scene->threads)};
}

static void prepare(int id) {
    struct part part = part_of(scene->side, id);
    for (int z = part.begin; z < part.end; z++) shade(z);
    for (int number = 0; number < scene->levels; number++) {
        part = part_of(scene->level[number].side, id);
        for (int z = part.begin; z < part.end; z++) sum_layer(number, z);
        pthread_barrier_wait(scene->barrier);
    }
}

/* --- Rays ------------------------------------------------------------------- */

/* The ray's distances into and out of the cube from `low` to `high`; 0 if it misses. */
static int clip(const double *from, const double *ahead, const double *low, const double *high,
                double *enter, double *leave) {
    for (int d = 0; d < 3; d++) {
        if (fabs(ahead[d]) < 1e-12) {
            if (from[d] < low[d] || from[d] >= high[d]) return 0;
            continue;
        }
        double a = (low[d] - from[d]) / ahead[d], b = (high[d] - from[d]) / ahead[d];
        *enter = fmax(*enter, fmin(a, b));
        *leave = fmin(*leave, fmax(a, b));
    }
    return *enter < *leave;
}

/* The level of the largest empty cube around a voxel; -1 if there is none. */
static int empty_around(const int *voxel) {
    int found = -1;
    for (int i = 0; i < scene->levels; i++) {
        const struct level *level = &scene->level[i];
        int x = voxel[0] / level->width, y = voxel[1] / level->width, z = voxel[2] / level->width;
        if (level->largest[(z * level->side + y) * level->side + x] != 0) break;
        found = i;
    }
    return found;
}

/* The distance along the ray at which it leaves a voxel's cube of this level. */
static double end_of(int level, const int *voxel, const double *from, const double *ahead) {
    double low[3], high[3], enter = -INFINITY, leave = INFINITY;
    int width = scene->level[level].width;
    for (int d = 0; d < 3; d++) {
        low[d] = voxel[d] / width * width;
        high[d] = low[d] + width;
    }
    return clip(from, ahead, low, high, &enter, &leave) ? leave : -INFINITY;
}

/* The light along a ray. */
static double cast(const double *from, const double *ahead, struct tally *tally) {
    double low[3] = {0, 0, 0}, side = scene->side, high[3] = {side, side, side};
    double at = 0, end = INFINITY, light = 0, clear = 1;
    if (!clip(from, ahead, low, high, &at, &end)) return 0;
    tally->hits++;
    for (at += 0.5; at < end && clear > 0.02;) {
        int voxel[3];
        for (int d = 0; d < 3; d++) {
            double along = floor(from[d] + at * ahead[d]);
            voxel[d] = (int)fmin(fmax(along, 0), side - 1);
        }
        int level = empty_around(voxel);
        if (level >= 0) {
            /* The ray's first step outside of the cube. */
            at += fmax(1, ceil(end_of(level, voxel, from, ahead) - at));
            tally->skips++;
            tally->levels += level + 1;
            continue;
        }
        long place = ((long)voxel[2] * scene->side + voxel[1]) * scene->side + voxel[0];
        double held = (double)scene->opacity[scene->density[place]];
        light += clear * held * scene->brightness[place];
        clear *= 1 - held;
        tally->samples++;
        at += 1;
    }
    tally->opaque += clear <= 0.02;
    return light;
}

static struct tally draw_tile(int tile) {
    struct tally tally = {.rays = TILE * TILE, .tiles = 1};
    int row = scene->width / TILE, left = tile % row * TILE, top = tile / row * TILE;
    const struct view *view = scene->view;
    for (int y = top; y < top + TILE; y++)
        for (int x = left; x < left + TILE; x++) {
            double from[3], right = x + 0.5 - scene->width / 2, down = y + 0.5 - scene->width / 2;
            for (int d = 0; d < 3; d++)
                from[d] = scene->side / 2.0 - 2 * scene->side * view->ahead[d] +
                          right * view->right[d] + down * view->down[d];
            scene->image[y * scene->width + x] = (uint8_t)(cast(from, view->ahead, &tally) + 0.5);
        }
    scene->drawn[tile]++;
    return tally;
}

/* --- Dividing the work ------------------------------------------------------ */

static int take(struct queue *queue) {
    pthread_mutex_lock(&queue->lock);
    int tile = queue->next < queue->end ? queue->next++ : -1;
    pthread_mutex_unlock(&queue->lock);
    return tile;
}

static int next_tile(int id, struct tally *tally) {
    for (int i = 0; i < scene->threads; i++) {
        int tile = take(scene->queue[(id + i) % scene->threads]);
        if (tile < 0) continue;
        tally->taken += i > 0;
        return tile;
    }
    return -1;
}

/* Half a turn in all frames; the last frame is seen from the front. */
static void look(int frame) {
    double angle = (FRAMES - 1 - frame) * 0.7;
    struct view *view = scene->view;
    double ahead[3] = {sin(angle), 0, cos(angle)}, right[3] = {cos(angle), 0, -sin(angle)};
    for (int d = 0; d < 3; d++) {
        view->ahead[d] = ahead[d];
        view->right[d] = right[d];
        view->down[d] = d == 1;
    }
}

static void add_tally(struct tally *tally, const struct tally *of_tile) {
    tally->rays += of_tile->rays;
    tally->hits += of_tile->hits;
    tally->opaque += of_tile->opaque;
    tally->samples += of_tile->samples;
    tally->skips += of_tile->skips;
    tally->levels += of_tile->levels;
    tally->tiles += of_tile->tiles;
}

static void work(int id) {
    struct tally *tally = scene->tally[id];
    struct queue *own = scene->queue[id];
    prepare(id);
    for (int frame = 0; frame < FRAMES; frame++) {
        if (id == 0) look(frame);
        pthread_mutex_lock(&own->lock);
        struct part part = part_of(scene->tiles, id);
        own->next = part.begin;
        own->end = part.end;
        pthread_mutex_unlock(&own->lock);
        pthread_barrier_wait(scene->barrier);
        for (int tile; (tile = next_tile(id, tally)) >= 0;) {
            struct tally of_tile = draw_tile(tile);
            add_tally(tally, &of_tile);
            let_others_run();
        }
        tally->frames++;
        pthread_barrier_wait(scene->barrier);
    }
}

/* --- The result ------------------------------------------------------------- */

static uint64_t checksum(void) {
    uint64_t sum = 0;
    for (int i = 0; i < scene->width * scene->width; i++) sum = mix(sum, scene->image[i]);
    for (int i = 0; i < scene->tiles; i++) sum = mix(sum, (uint64_t)scene->drawn[i]);
    return sum;
}

static void print_result(void) {
    long lit = 0, light = 0, often = 0, rays = 0, samples = 0;
    for (int i = 0; i < scene->width * scene->width; i++) {
        lit += scene->image[i] != 0;
        light += scene->image[i];
    }
    for (int i = 0; i < scene->tiles; i++) often += scene->drawn[i] != FRAMES;
    for (int t = 0; t < scene->threads; t++) {
        rays += scene->tally[t]->rays;
        samples += scene->tally[t]->samples;
    }
    print_fact("rays", (double)rays);
    print_fact("samples", (double)samples);
    print_fact("lit", (double)lit);
    print_fact("light", (double)light);
    print_fact("tiles_not_drawn_once", (double)often);
}

int main(int argc, char **argv) {
    struct arguments a = read_arguments(argc, argv, 2, 1024);
    scene = NEW(struct scene, 1);
    scene->threads = a.threads;
    scene->side = (int)a.size;
    make_volume(a.variant);
    make_octree();
    make_image();
    make_queues();
    run_workers(a.threads, work);
    print_checksum(checksum());
    if (wants_check()) print_result();
    return 0;
}
