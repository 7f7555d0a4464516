// Response times of several servers. Every thread follows one server and keeps
// the mean and the variance of its times in a record of its own. The records are
// the nodes of a std::list, allocated one after the other before the threads
// start, and a node is not as long as a cache line.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <list>
#include <thread>
#include <vector>

#ifdef FIXED
struct alignas(64) RunningStats {
#else
struct RunningStats {
#endif
    std::uint32_t count = 0;
    float longest = 0;
    double sum = 0;
    double squares = 0;

    void add(double milliseconds);
};

// In a real program this stands in another file, and is not inlined.
__attribute__((noinline)) void RunningStats::add(double milliseconds) {
    count++;
    sum += milliseconds;
    squares += milliseconds * milliseconds;
    longest = std::max(longest, static_cast<float>(milliseconds));
}

static void follow(RunningStats &stats, const std::vector<double> &times, long requests) {
    std::vector<std::uint32_t> histogram(64);
    std::size_t at = 0;
    for (long i = 0; i < requests; i++) {
        const double time = times[at];
        histogram[static_cast<std::size_t>(time) % histogram.size()]++;
        stats.add(time);
        at = at + 1 == times.size() ? 0 : at + 1;
    }
    const auto top = std::max_element(histogram.begin(), histogram.end());
    stats.add(static_cast<double>(top - histogram.begin()));
}

int main(int argc, char **argv) {
    const int servers = argc == 3 ? std::atoi(argv[1]) : 0;
    const long requests = argc == 3 ? std::atol(argv[2]) : 0;
    if (servers < 1 || servers > 64 || requests < 1) {
        std::fprintf(stderr, "usage: latency_stats THREADS SIZE\n");
        return 2;
    }
    std::vector<double> times;
    for (int i = 0; i < 2048; i++)
        times.push_back(i * 7919 % 500 * 0.25);

    std::list<RunningStats> all;
    for (int s = 0; s < servers; s++)
        all.emplace_back();
    std::vector<std::thread> threads;
    for (RunningStats &stats : all)
        threads.emplace_back(follow, std::ref(stats), std::cref(times), requests / servers);
    for (std::thread &thread : threads)
        thread.join();

    std::uint64_t sum = 0;
    for (const RunningStats &stats : all) {
        const double mean = stats.sum / stats.count;
        const double variance = stats.squares / stats.count - mean * mean;
        sum = sum * 31 + stats.count + static_cast<std::uint64_t>(std::llround(variance * 1000));
        sum = sum * 31 + static_cast<std::uint64_t>(std::llround(mean * 1000 + stats.longest));
    }
    std::printf("checksum %016lx\n", sum);
    return 0;
}
