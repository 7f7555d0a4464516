// Two threads count, each in two small objects of its own, which were allocated in turns, so that some
// of both lie on one line. The objects come and go: new ones in each round. Ends when all lie on lines
// of their own, and says so. Argument: rounds.
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <set>
#include <thread>

struct Tally {
    volatile long count = 0;
};

static std::unique_ptr<Tally> make() { return std::make_unique<Tally>(); }

static void count(Tally &one, Tally &other) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(150);
    while (std::chrono::steady_clock::now() < end)
        for (int i = 0; i < 20000; i++) {
            one.count = one.count + 1;
            other.count = other.count + 1;
        }
}

int main(int argc, char **argv) {
    const int rounds = argc > 1 ? std::atoi(argv[1]) : 1;
    for (int round = 0; round < rounds; round++) {
        const std::unique_ptr<Tally> tallies[] = {make(), make(), make(), make()};
        std::thread first(count, std::ref(*tallies[0]), std::ref(*tallies[2]));
        std::thread second(count, std::ref(*tallies[1]), std::ref(*tallies[3]));
        first.join();
        second.join();
        std::set<uintptr_t> lines;
        for (const auto &tally : tallies)
            lines.insert(reinterpret_cast<uintptr_t>(tally.get()) / 64);
        if (lines.size() == 4) {
            std::puts("apart");
            return 0;
        }
    }
    std::puts("side by side");
    return 0;
}
