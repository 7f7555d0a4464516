// C++: exceptions through threads, futures, thread_local objects and their
// destructors, waiting on atomics, latches, semaphores, shared pointers.
#include <atomic>
#include <barrier>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <future>
#include <latch>
#include <map>
#include <memory>
#include <mutex>
#include <semaphore>
#include <shared_mutex>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#define CHECK(condition)                                                   \
    do {                                                                   \
        if (!(condition)) {                                                \
            std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
            std::_Exit(99);                                                \
        }                                                                  \
    } while (0)

static volatile long hot[8];
static std::atomic<long> ended, made;

struct Local {
    std::string name = "a name that is longer than what fits inside";
    Local() { made++; }
    ~Local() { ended++; }
};
static thread_local Local local;

__attribute__((noinline)) static void heat(long own, long times) {
    for (long i = 0; i < times; i++) hot[own] = hot[own] + 1;
}

__attribute__((noinline)) static long deep(int depth, long own) {
    std::string kept(40, 'x');
    heat(own, 20);
    if (depth == 0) throw std::runtime_error("from " + std::to_string(own));
    long result = deep(depth - 1, own);
    CHECK(kept[39] == 'x');
    return result;
}

int main(int argc, char **argv) {
    const long scale = argc > 1 ? std::atol(argv[1]) : 1, rounds = 200 * scale;
    {
        std::vector<std::future<long>> futures;
        for (long i = 0; i < 4; i++)
            futures.push_back(std::async(std::launch::async, [=] {
                long caught = 0;
                for (long k = 0; k < rounds; k++) {
                    try {
                        deep(10, i);
                    } catch (const std::runtime_error &error) {
                        CHECK(error.what() == "from " + std::to_string(i));
                        caught++;
                    }
                }
                CHECK(local.name.size() == 43);
                if (i == 3) throw std::out_of_range("through the future");
                return caught;
            }));
        for (int i = 0; i < 3; i++) CHECK(futures[i].get() == rounds);
        try {
            futures[3].get();
            CHECK(!"no exception");
        } catch (const std::out_of_range &error) {
            std::puts(error.what());
        }
    }
    std::printf("locals %ld, ended %ld\n", made.load(), ended.load());

    std::atomic<long> turn{0};
    std::latch done(4);
    std::counting_semaphore<4> free_places(2);
    std::barrier meet(4);
    std::atomic<long> inside{0}, most{0};
    std::shared_mutex lock;
    std::map<long, std::string> table;
    {
        std::vector<std::jthread> threads;
        for (long i = 0; i < 4; i++)
            threads.emplace_back([&, i] {
                for (long k = 0; k < rounds; k++) {
                    for (long t; (t = turn.load()) % 4 != i;) turn.wait(t);
                    heat(4 + i, 10);
                    turn++;
                    turn.notify_all();
                    free_places.acquire();
                    long now = ++inside, old = most;
                    while (old < now && !most.compare_exchange_weak(old, now)) {
                    }
                    inside--;
                    free_places.release();
                    {
                        std::unique_lock hold(lock);
                        table[k * 4 + i] = std::to_string(k);
                    }
                    std::shared_lock look(lock);
                    CHECK(table.at(k * 4 + i) == std::to_string(k));
                }
                meet.arrive_and_wait();
                done.count_down();
            });
        done.wait();
    }
    CHECK(turn == 4 * rounds && most <= 2 && (long)table.size() == 4 * rounds);
    std::puts("atomics, latch, semaphore, barrier, shared mutex");

    std::mutex mutex;
    std::condition_variable_any changed;
    bool stopped = false;
    {
        std::jthread waits([&](std::stop_token stop) {
            std::unique_lock hold(mutex);
            changed.wait(hold, stop, [] { return false; });
            stopped = stop.stop_requested();
        });
        heat(0, 1000000);
    }
    CHECK(stopped);
    auto shared = std::make_shared<std::vector<long>>(100, 1);
    {
        std::vector<std::jthread> threads;
        for (int i = 0; i < 4; i++)
            threads.emplace_back([copy = shared, rounds] {
                for (long k = 0; k < rounds * 100; k++) {
                    auto another = copy;
                    CHECK(another->at(k % 100) == 1);
                }
            });
    }
    CHECK(shared.use_count() == 1);
    std::puts("stopped and shared");
    return 0;
}
