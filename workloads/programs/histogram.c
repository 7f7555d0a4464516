/* Counts the brightness of an image's pixels, by colour. Each thread's task holds its
 * counts; the tasks lie one after the other, so the counts of the brightest reds of one
 * share a line with the head of the next, which the other thread reads for each pixel.
 * The image is a bright evening sky.
 * After: Phoenix; SHERIFF section 6.4 and Plastic section 6.2 (about 25%). */
#include "workload.h"

enum { SHADES = 256, PIXELS = 1 << 16 };

struct task {
    const unsigned char *pixels;
    long count;
    uint32_t blue[SHADES], green[SHADES], red[SHADES];
} OWN_LINE;

static struct task *tasks;

static OPAQUE void count_pixel(struct task *task, long i) {
    const unsigned char *pixel = &task->pixels[3 * (i % PIXELS)]; /* touch: head */
    task->count++;
    task->blue[pixel[0]]++;
    task->green[pixel[1]]++;
    task->red[pixel[2]]++; /* touch: red */
}

static void work(struct part *part) {
    struct task *mine = &tasks[part->id];
    for (long i = part->begin; i < part->end; i++) count_pixel(mine, i);
}

static unsigned char *new_image(void) {
    unsigned char *image = malloc(3 * PIXELS);
    for (long i = 0; i < PIXELS; i++) {
        uint64_t n = scramble((uint64_t)i);
        image[3 * i] = (unsigned char)(n % 180);
        image[3 * i + 1] = (unsigned char)(n >> 8 & 0xff);
        image[3 * i + 2] = (unsigned char)(256 - 16 + (n >> 16) % 16);
    }
    return image;
}

int main(int argc, char **argv) {
    struct arguments a = read_arguments(argc, argv);
    unsigned char *image = new_image();
    size_t bytes = (size_t)a.threads * sizeof *tasks;
    if (IS_FIXED) {
        tasks = aligned_alloc(LINE, bytes); /* alloc: tasks_fixed */
    } else {
        lead_heap_to(bytes, 32);
        tasks = malloc(bytes); /* alloc: tasks */
    }
    memset(tasks, 0, bytes);
    for (long i = 0; i < a.threads; i++) tasks[i].pixels = image;
    if (a.threads > 1)
        check_layout(on_one_line(&tasks[0].red[SHADES - 1], &tasks[1].pixels) != IS_FIXED, "tasks");
    run_threads(a, work);
    uint64_t sum = 0;
    for (long i = 0; i < a.threads; i++)
        for (uint64_t s = 0; s < SHADES; s++)
            sum += s * tasks[i].blue[s] + s * s * tasks[i].green[s] + (s ^ 85) * tasks[i].red[s];
    print_checksum(sum);
    free(tasks);
    free(image);
    return 0;
}
