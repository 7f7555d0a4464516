/* A flag that all threads poll lies beside a counter that one of them updates
 * all the time. The flag changes once, at the end. */
#include "workload.h"
#include <stdbool.h>

struct server {
    OWN_LINE _Atomic uint64_t handled; /* updated by thread 0 */
    OWN_LINE _Atomic bool stop;        /* polled by the others */
};

static struct server *server;
static uint64_t polled[MAX_THREADS][LINE / sizeof(uint64_t)] ON_LINE;

static OPAQUE uint64_t step(struct server *s, uint64_t *journal, uint64_t i) {
    journal[i % JOURNAL] = i;
    return s->stop ? 0 : i % 3; /* touch: stop */
}

static void work(struct part *part) {
    uint64_t *journal = new_journal();
    uint64_t sum = 0;
    if (part->id == 0) {
        for (long i = 0; i < part->size; i++) server->handled++; /* touch: handled */
    } else {
        divide_among_others(part);
    }
    if (part->id > 0 || part->threads == 1)
        for (long i = 4 * part->begin; i < 4 * part->end; i++)
            sum += step(server, journal, (uint64_t)i);
    polled[part->id][0] = sum;
    free(journal);
}

int main(int argc, char **argv) {
    struct arguments a = read_arguments(argc, argv);
    server = aligned_alloc(LINE, (sizeof *server + LINE - 1) / LINE * LINE); /* alloc: server */
    server->handled = 0;
    server->stop = false;
    check_layout(on_one_line(&server->handled, &server->stop) != IS_FIXED, "server");
    run_threads(a, work);
    server->stop = true;
    uint64_t sum = server->handled + server->stop;
    for (long i = 0; i < a.threads; i++) sum += polled[i][0];
    print_checksum(sum);
    free(server);
    return 0;
}
