// A table of page views, striped: every stripe has a small spinlock, a count and
// a sum. A front end sends each thread the pages of its own, so that no two
// threads want the same stripe; but four stripes fall on one cache line.
#include <array>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#ifdef FIXED
struct alignas(64) Stripe {
#else
struct Stripe {
#endif
    std::atomic<bool> locked{false};
    std::uint32_t views = 0;
    std::uint64_t seconds = 0;

    void lock() {
        while (locked.exchange(true, std::memory_order_acquire))
            std::this_thread::yield();
    }
    void unlock() { locked.store(false, std::memory_order_release); }
};

class ViewTable {
public:
    void add(std::uint64_t page, std::uint32_t seconds) {
        Stripe &stripe = stripes_[page % stripes_.size()];
        stripe.lock();
        stripe.views++;
        stripe.seconds += seconds;
        stripe.unlock();
    }

    std::uint64_t digest() const {
        std::uint64_t hash = 0;
        for (const Stripe &stripe : stripes_)
            hash = (hash ^ stripe.seconds) * 31 + stripe.views;
        return hash;
    }

private:
    std::array<Stripe, 64> stripes_;
};

static ViewTable table;

// Sees `views` page views; the pages are those whose number is `first` modulo `step`.
static void watch(std::uint64_t first, std::uint64_t step, long views) {
    std::uint64_t visitor = first + 1;
    for (long i = 0; i < views; i++) {
        visitor = visitor * 6364136223846793005u + 1442695040888963407u;
        const std::uint64_t page = (visitor >> 40) * step + first;
        table.add(page, static_cast<std::uint32_t>(visitor >> 33) % 600);
    }
}

int main(int argc, char **argv) {
    const int threads = argc == 3 ? std::atoi(argv[1]) : 0;
    const long views = argc == 3 ? std::atol(argv[2]) : 0;
    if (threads < 1 || threads > 64 || views < 1) {
        std::fprintf(stderr, "usage: striped_table THREADS SIZE\n");
        return 2;
    }
    std::vector<std::thread> watchers;
    for (int t = 0; t < threads; t++)
        watchers.emplace_back(watch, t, threads, views / threads);
    for (std::thread &watcher : watchers)
        watcher.join();
    std::printf("checksum %016lx\n", table.digest());
    return 0;
}
