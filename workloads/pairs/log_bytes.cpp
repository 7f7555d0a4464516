// Access log summary. Workers scan slices of a web server's log and add the
// bytes sent to an atomic counter of their own, so that a status page could read
// the totals at any time. The counters stand side by side in one std::vector:
// eight of them fall on one cache line.
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#ifdef FIXED
struct alignas(64) ByteCount {
#else
struct ByteCount {
#endif
    std::atomic<std::uint64_t> bytes{0};
};

struct Entry {
    std::uint32_t client;
    std::uint32_t path;
    std::uint16_t status;
    std::uint16_t length;
};

static std::vector<Entry> make_log(std::size_t entries) {
    std::vector<Entry> log(entries);
    std::uint64_t x = 88172645463325252u;
    for (Entry &e : log) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        e.client = static_cast<std::uint32_t>(x >> 40);
        e.path = static_cast<std::uint32_t>(x) % 997;
        e.status = (x >> 20) % 11 == 0 ? 404 : 200;
        e.length = static_cast<std::uint16_t>(x >> 16);
    }
    return log;
}

// Reads the whole log `passes` times, once for every report that was asked for.
static std::uint64_t scan(const std::vector<Entry> &log, std::size_t begin, std::size_t end,
                          long passes, std::atomic<std::uint64_t> &bytes) {
    std::vector<std::uint32_t> hits(997);
    std::uint64_t clients = 0;
    for (long pass = 0; pass < passes; pass++) {
        for (std::size_t i = begin; i < end; i++) {
            const Entry &e = log[i];
            hits[e.path]++;
            clients = (clients ^ e.client) * 0x100000001b3u;
            if (e.status == 200)
                bytes.fetch_add(e.length, std::memory_order_relaxed);
        }
    }
    std::uint64_t hash = clients;
    for (std::uint32_t h : hits)
        hash = hash * 31 + h;
    return hash;
}

int main(int argc, char **argv) {
    const int threads = argc == 3 ? std::atoi(argv[1]) : 0;
    const long passes = argc == 3 ? std::atol(argv[2]) : 0;
    if (threads < 1 || threads > 64 || passes < 1) {
        std::fprintf(stderr, "usage: log_bytes THREADS SIZE\n");
        return 2;
    }
    const std::vector<Entry> log = make_log(1 << 16);
    std::vector<ByteCount> sent(static_cast<std::size_t>(threads));
    std::vector<std::uint64_t> hashes(sent.size());
    std::vector<std::thread> workers;
    for (std::size_t t = 0; t < sent.size(); t++) {
        workers.emplace_back([&, t] {
            const std::size_t begin = log.size() * t / sent.size();
            const std::size_t end = log.size() * (t + 1) / sent.size();
            hashes[t] = scan(log, begin, end, passes, sent[t].bytes);
        });
    }
    std::uint64_t sum = 0;
    for (std::size_t t = 0; t < sent.size(); t++) {
        workers[t].join();
        sum = (sum ^ hashes[t]) * 31 + sent[t].bytes.load();
    }
    std::printf("checksum %016lx\n", sum);
    return 0;
}
