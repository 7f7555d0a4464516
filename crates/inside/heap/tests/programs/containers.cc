// Containers, strings, threads and failing requests; prints what it found.
#include <cstdio>
#include <map>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <vector>

struct alignas(128) Wide {
    long value[16];
};

int main() {
    std::map<std::string, std::vector<int>> all;
    for (int i = 0; i < 3000; i++) all["key" + std::to_string(i % 500)].push_back(i);
    long sum = 0;
    for (auto &entry : all)
        for (int v : entry.second) sum += v * (long)entry.first.size();
    std::vector<std::thread> threads;
    std::vector<std::unique_ptr<std::string>> made(8);
    for (int i = 0; i < 8; i++)
        threads.emplace_back([&made, i] { made[i] = std::make_unique<std::string>(i * 100, 'x'); });
    for (auto &t : threads) t.join();
    for (auto &s : made) sum += (long)s->size();
    auto *wide = new Wide[3];
    std::printf("aligned %d\n", (int)((unsigned long)wide % 128));
    delete[] wide;
    volatile unsigned long huge = ~0ul / 4;
    try {
        auto *p = new char[huge];
        std::printf("got %p\n", (void *)p);
    } catch (const std::bad_alloc &) {
        std::puts("bad_alloc");
    }
    std::printf("nothrow %d\n", new (std::nothrow) char[huge] == nullptr);
    std::printf("%ld\n", sum);
}
