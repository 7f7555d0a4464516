// Adjacent std::atomic counters: each thread counts events in a counter of its
// own, in a global array that packs eight of them on a line.
#include "workload.h"
#include <array>
#include <atomic>
#include <cstdint>

struct OWN_LINE counter {
    std::atomic<std::uint64_t> value{0};
};

ON_LINE std::array<counter, MAX_THREADS> counters;

static void count_events(struct part *part) {
    counter &mine = counters[static_cast<std::size_t>(part->id)];
    for (long i = part->begin; i < part->end; i++) {
        if (scramble(static_cast<std::uint64_t>(i)) % 16 != 0)
            mine.value.fetch_add(1, std::memory_order_relaxed); // touch: counters
    }
}

int main(int argc, char **argv) {
    struct arguments a = read_arguments(argc, argv);
    check_layout(on_one_line(&counters[0], &counters[1]) != IS_FIXED, "counters");
    run_threads(a, count_events);
    std::uint64_t sum = 0;
    for (const counter &c : counters) sum += c.value.load();
    print_checksum(sum);
    return 0;
}
