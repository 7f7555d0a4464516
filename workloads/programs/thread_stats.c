/* Statistics of a thread pool: a global array of small structures, one a
 * thread. Each thread parses records and counts them in its own element. */
#include "workload.h"

struct thread_stats {
    uint64_t bytes;
    uint32_t records;
    uint32_t errors;
} OWN_LINE;

ON_LINE struct thread_stats stats[MAX_THREADS];

/* Not inlined, as the parser of a real program is in another file. */
static OPAQUE void parse(struct thread_stats *s, uint64_t *journal, uint64_t record) {
    uint64_t length = record >> 54;
    journal[record % JOURNAL] = length;
    s->bytes += length; /* touch: stats */
    s->records++;
    if (length == 0) s->errors++;
}

static void serve(struct part *part) {
    uint64_t *journal = new_journal();
    for (long i = part->begin; i < part->end; i++)
        parse(&stats[part->id], journal, (uint64_t)i * 0x9e3779b97f4a7c15u);
    free(journal);
}

int main(int argc, char **argv) {
    struct arguments a = read_arguments(argc, argv);
    check_layout(on_one_line(&stats[0], &stats[1]) != IS_FIXED, "stats");
    run_threads(a, serve);
    uint64_t sum = 0;
    for (long i = 0; i < a.threads; i++)
        sum += stats[i].bytes + 3ul * stats[i].records + 7ul * stats[i].errors;
    print_checksum(sum);
    return 0;
}
