/* Small blocks that one thread allocates for the others: two threads get blocks of
 * one line. In the fixed variant each thread allocates its own, which glibc takes
 * from another arena. SHERIFF section 4.8, "heap-induced false sharing". */
#include "workload.h"

struct session {
    uint64_t bytes;
    uint32_t messages;
};

static struct session *sessions[MAX_THREADS];

/* The stores after the allocation keep the compiler from jumping to malloc, which
 * would leave no stack frame of this function; a memset would be merged with malloc
 * to calloc. */
static OPAQUE struct session *new_session(void) {
    struct session *new = malloc(sizeof *new); /* alloc: session */
    new->bytes = 0;
    new->messages = 0;
    return new;
}

static OPAQUE void receive(struct session *s, uint64_t *journal, uint64_t length) {
    journal[length % JOURNAL] = length;
    s->bytes += length; /* touch: session */
    s->messages++;
}

static void work(struct part *part) {
    if (IS_FIXED) {
        sessions[part->id] = new_session();
        /* A thread that begins after another has ended would get its arena. */
        pthread_barrier_wait(part->start);
    }
    struct session *mine = sessions[part->id];
    uint64_t *journal = new_journal();
    for (long i = part->begin; i < part->end; i++)
        receive(mine, journal, ((uint64_t)i * 0x9e3779b97f4a7c15u) >> 54);
    free(journal);
}

int main(int argc, char **argv) {
    struct arguments a = read_arguments(argc, argv);
    lead_heap_to(sizeof(struct session), 0);
    for (long i = 0; i < a.threads && !IS_FIXED; i++) {
        sessions[i] = new_session();
    }
    run_threads(a, work);
    if (a.threads > 1)
        check_layout(on_one_line(sessions[0], sessions[1]) != IS_FIXED, "sessions");
    uint64_t sum = 0;
    for (long i = 0; i < a.threads; i++) {
        sum += sessions[i]->bytes + 3ul * sessions[i]->messages;
        free(sessions[i]);
    }
    print_checksum(sum);
    return 0;
}
