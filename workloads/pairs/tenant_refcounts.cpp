// A service for several tenants. Every worker serves one tenant and hands the
// tenant's settings to the request handler as a std::shared_ptr by value. The
// settings are different objects, but std::make_shared puts each reference count
// beside its object, and the small blocks lie one after the other on the heap.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <thread>
#include <vector>

#ifdef FIXED
struct alignas(64) Settings {
#else
struct Settings {
#endif
    std::uint64_t key;
    std::uint32_t quota;
    std::uint32_t mask;
};

using SettingsPtr = std::shared_ptr<const Settings>;

struct Answer {
    std::uint64_t token;
    bool allowed;
};

__attribute__((noinline)) static Answer handle(SettingsPtr settings, std::uint64_t request) {
    std::uint64_t token = request ^ settings->key;
    for (int round = 0; round < 3; round++) {
        token *= 0x9e3779b97f4a7c15u;
        token ^= token >> 29;
    }
    return {token, (token & settings->mask) < settings->quota};
}

class Worker {
public:
    explicit Worker(SettingsPtr settings) : settings_(std::move(settings)), recent_(128) {}

    void serve(long requests) {
        for (long i = 0; i < requests; i++) {
            const auto request = static_cast<std::uint64_t>(i);
            const Answer answer = handle(settings_, request);
            recent_[request % recent_.size()] = answer.token;
            allowed_ += answer.allowed;
        }
    }

    std::uint64_t digest() const {
        std::uint64_t hash = allowed_;
        for (std::uint64_t token : recent_)
            hash = (hash ^ token) * 0x100000001b3u;
        return hash;
    }

private:
    SettingsPtr settings_;
    std::vector<std::uint64_t> recent_;
    std::uint64_t allowed_ = 0;
};

int main(int argc, char **argv) {
    const int threads = argc == 3 ? std::atoi(argv[1]) : 0;
    const long requests = argc == 3 ? std::atol(argv[2]) : 0;
    if (threads < 1 || threads > 64 || requests < 1) {
        std::fprintf(stderr, "usage: tenant_refcounts THREADS SIZE\n");
        return 2;
    }
    std::vector<SettingsPtr> tenants;
    tenants.reserve(static_cast<std::size_t>(threads));
    for (int t = 0; t < threads; t++) {
        const auto id = static_cast<std::uint32_t>(t);
        tenants.push_back(std::make_shared<const Settings>(Settings{id * 7919u + 1u, 200 + id, 255}));
    }
    std::vector<std::uint64_t> digests(tenants.size());
    std::vector<std::thread> workers;
    for (std::size_t t = 0; t < tenants.size(); t++) {
        workers.emplace_back([&, t] {
            Worker worker(tenants[t]);
            worker.serve(requests / threads);
            digests[t] = worker.digest();
        });
    }
    std::uint64_t sum = 0;
    for (std::size_t t = 0; t < tenants.size(); t++) {
        workers[t].join();
        sum = sum * 31 + digests[t];
    }
    std::printf("checksum %016lx\n", sum);
    return 0;
}
