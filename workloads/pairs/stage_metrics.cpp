// Metrics of a message pipeline. Every stage has its metrics as static members
// of a template, written by the thread of that stage alone (a load and a store,
// no locked instruction). The linker puts these small variables side by side.
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

struct Parse { static constexpr std::uint64_t SALT = 0x243f6a8885a308d3; };
struct Check { static constexpr std::uint64_t SALT = 0x13198a2e03707344; };
struct Store { static constexpr std::uint64_t SALT = 0xa4093822299f31d0; };
struct Reply { static constexpr std::uint64_t SALT = 0x082efa98ec4e6c89; };

template <typename Stage>
struct Metrics {
#ifdef FIXED
    alignas(64) inline static std::atomic<std::uint64_t> messages{0};
    alignas(64) inline static std::atomic<std::uint64_t> bytes{0};
#else
    inline static std::atomic<std::uint64_t> messages{0};
    inline static std::atomic<std::uint64_t> bytes{0};
#endif

    static void record(std::uint64_t size) {
        add(messages, 1);
        add(bytes, size);
    }

    static std::uint64_t digest() { return messages.load() * 31 + bytes.load(); }

private:
    // Enough because only one thread writes.
    static void add(std::atomic<std::uint64_t> &value, std::uint64_t more) {
        value.store(value.load(std::memory_order_relaxed) + more, std::memory_order_relaxed);
    }
};

template <typename Stage>
static void run_stage(long messages, std::uint64_t &digest) {
    std::vector<std::uint64_t> buffer(512, Stage::SALT);
    std::uint64_t message = Stage::SALT;
    for (long i = 0; i < messages; i++) {
        std::uint64_t &slot = buffer[message % buffer.size()];
        message = (message ^ (message >> 31)) * 0x9e3779b97f4a7c15u + static_cast<std::uint64_t>(i);
        slot ^= message;
        Metrics<Stage>::record(message >> 54);
    }
    std::uint64_t hash = 0;
    for (std::uint64_t slot : buffer)
        hash = (hash ^ slot) * 0x100000001b3u;
    digest = hash;
}

int main(int argc, char **argv) {
    using Run = void (*)(long, std::uint64_t &);
    const Run stages[] = {run_stage<Parse>, run_stage<Check>, run_stage<Store>, run_stage<Reply>};
    const int threads = argc == 3 ? std::atoi(argv[1]) : 0;
    const long messages = argc == 3 ? std::atol(argv[2]) : 0;
    if (threads < 1 || threads > 4 || messages < 1) {
        std::fprintf(stderr, "usage: stage_metrics THREADS SIZE (at most 4 threads)\n");
        return 2;
    }
    std::vector<std::uint64_t> digests(static_cast<std::size_t>(threads));
    std::vector<std::thread> running;
    for (std::size_t t = 0; t < digests.size(); t++)
        running.emplace_back(stages[t], messages / threads, std::ref(digests[t]));
    for (std::thread &thread : running)
        thread.join();

    std::uint64_t sum = 0;
    for (std::uint64_t digest : digests)
        sum = sum * 31 + digest;
    sum = sum * 31 + Metrics<Parse>::digest();
    sum = sum * 31 + Metrics<Check>::digest();
    sum = sum * 31 + Metrics<Store>::digest();
    sum = sum * 31 + Metrics<Reply>::digest();
    std::printf("checksum %016lx\n", sum);
    return 0;
}
