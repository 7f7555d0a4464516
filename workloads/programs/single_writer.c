/* One writer beside readers of other bytes: thread 0 publishes its progress, the others read the
 * limits that lie beside it and never the progress. No byte is touched by both. SHERIFF cannot
 * see it (section 4.8, "single writer"). */
#include "workload.h"

struct settings {
    uint64_t low;  /* read by the others */
    uint64_t high; /* read by the others */
    OWN_LINE uint64_t progress; /* written by thread 0 */
};

ON_LINE struct settings settings = {100, 1000, 0};
static uint64_t inside[MAX_THREADS][LINE / sizeof(uint64_t)] ON_LINE;

static OPAQUE void publish(struct settings *s, uint64_t *journal, uint64_t i) {
    journal[i % JOURNAL] = i;
    s->progress++; /* touch: progress */
}

static OPAQUE uint64_t is_inside(const struct settings *s, uint64_t *journal, uint64_t value) {
    journal[value % JOURNAL] = value;
    return value >= s->low && value < s->high; /* touch: limits */
}

static void write_all(struct part *part) {
    uint64_t *journal = new_journal();
    for (long i = 0; i < part->size; i++) publish(&settings, journal, (uint64_t)i);
    free(journal);
}

static void read_part(struct part *part) {
    uint64_t *journal = new_journal();
    uint64_t count = 0;
    for (long i = part->begin; i < part->end; i++)
        count += is_inside(&settings, journal, ((uint64_t)i * 0x9e3779b97f4a7c15u) >> 53);
    inside[part->id][0] = count;
    free(journal);
}

static void work(struct part *part) {
    if (part->id == 0) write_all(part);
    if (part->id > 0) divide_among_others(part);
    if (part->id > 0 || part->threads == 1) read_part(part);
}

int main(int argc, char **argv) {
    struct arguments a = read_arguments(argc, argv);
    check_layout(on_one_line(&settings.low, &settings.progress) != IS_FIXED, "settings");
    run_threads(a, work);
    uint64_t sum = settings.progress;
    for (long i = 0; i < a.threads; i++) sum += inside[i][0];
    print_checksum(sum);
    return 0;
}
