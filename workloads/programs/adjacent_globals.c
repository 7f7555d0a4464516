/* Two unrelated global variables lie on one line: one thread counts incoming, another
 * outgoing packets. After: SHERIFF section 4, the first type of false sharing
 * ("structurally-unrelated objects"). */
#include "workload.h"

ON_LINE uint64_t packets_in;
OWN_LINE uint64_t packets_out;

static OPAQUE void handle(uint64_t *counter, uint64_t *journal, uint64_t packet) {
    journal[packet % JOURNAL] = packet;
    *counter += packet; /* touch: counter */
}

static void work(struct part *part) {
    uint64_t *journal = new_journal();
    for (long i = 0; i < part->size; i++) {
        uint64_t packet = ((uint64_t)i * 0x9e3779b97f4a7c15u) >> 54;
        if (part->id == 0) handle(&packets_in, journal, packet);
        if (part->id == part->threads - 1) handle(&packets_out, journal, packet + 1);
    }
    free(journal);
}

int main(int argc, char **argv) {
    struct arguments a = read_arguments(argc, argv);
    check_layout(on_one_line(&packets_in, &packets_out) != IS_FIXED, "packets");
    run_threads(a, work);
    print_checksum(packets_in + 3 * packets_out);
    return 0;
}
