// Tasks in threads that compute on neighbours of one page, throw exceptions across
// threads, and pass results by futures, condition variables and atomics. Prints sums
// that do not depend on the order in which the threads ran.
#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <future>
#include <mutex>
#include <numeric>
#include <shared_mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

alignas(4096) volatile unsigned long shared[512];
static char beside[4096] __attribute__((aligned(4096), used));

static void spin(int own, long loops) {
    for (long i = 0; i < loops; i++) shared[own] = shared[own] + (unsigned long)i % 7;
}

static unsigned long sum_of(long loops) {
    unsigned long sum = 0;
    for (long i = 0; i < loops; i++) sum += (unsigned long)i % 7;
    return sum;
}

struct Wrong : std::runtime_error {
    int own;
    explicit Wrong(int own) : std::runtime_error("task " + std::to_string(own)), own(own) {}
};

static std::string task(int own, long loops) {
    spin(own, loops);
    if (own % 3 == 2) throw Wrong(own);
    return std::string((size_t)own * 10 + 1, 'x');
}

int main() {
    const long loops = 3000000;
    unsigned long letters = 0, thrown = 0;
    for (int round = 0; round < 4; round++) {
        std::vector<std::future<std::string>> all;
        for (int own = 0; own < 6; own++) all.push_back(std::async(std::launch::async, task, own, loops));
        for (auto &one : all) {
            try {
                letters += one.get().size();
            } catch (const Wrong &wrong) {
                thrown += (unsigned long)wrong.own * 100 + std::string(wrong.what()).size();
            }
        }
    }
    bool right = true;
    for (int own = 0; own < 6; own++) right = right && shared[own] == 4 * sum_of(loops);

    std::mutex lock;
    std::condition_variable news;
    std::shared_mutex table;
    std::atomic<long> count{0};
    std::vector<int> queue, values;
    bool over = false;
    std::vector<std::thread> threads;
    for (int own = 10; own < 12; own++)
        threads.emplace_back([&, own] {
            for (;;) {
                std::unique_lock<std::mutex> held(lock);
                news.wait(held, [&] { return over || !queue.empty(); });
                if (queue.empty()) return;
                int value = queue.back();
                queue.pop_back();
                held.unlock();
                spin(own, 200000);
                count.fetch_add(value);
                std::unique_lock<std::shared_mutex> writes(table);
                values.push_back(value);
            }
        });
    for (int i = 1; i <= 200; i++) {
        {
            std::lock_guard<std::mutex> held(lock);
            queue.push_back(i);
        }
        news.notify_one();
        if (i % 20 == 0) spin(12, 100000);
    }
    {
        std::lock_guard<std::mutex> held(lock);
        over = true;
    }
    news.notify_all();
    for (auto &thread : threads) thread.join();
    long total = std::accumulate(values.begin(), values.end(), 0L);
    printf("%lu %lu %d %ld %ld %zu\n", letters, thrown, right, count.load(), total, values.size());
    return 7;
}
