// Cash desks. Every thread books the sales of one desk in an account that has a
// std::mutex and two totals. The accounts are a local array of main, captured by
// the lambdas of the threads, and an account is not as long as a cache line, so
// that each shares a line with the next.
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <thread>
#include <vector>

constexpr int MAX_DESKS = 16;

#ifdef FIXED
struct alignas(64) Account {
#else
struct Account {
#endif
    std::mutex lock;
    std::int64_t balance = 0;

    void book(std::int64_t cents) {
        std::lock_guard<std::mutex> guard(lock);
        balance += cents;
    }
};

struct Sale {
    std::uint32_t article;
    std::int32_t cents;
};

static std::vector<Sale> make_sales() {
    std::vector<Sale> sales;
    std::uint32_t x = 2463534242u;
    for (int i = 0; i < 4096; i++) {
        x ^= x << 13;
        x ^= x >> 17;
        x ^= x << 5;
        const auto cents = static_cast<std::int32_t>(x % 5000) - 150; // some goods come back
        sales.push_back({x >> 20, cents});
    }
    return sales;
}

int main(int argc, char **argv) {
    const int desks = argc == 3 ? std::atoi(argv[1]) : 0;
    const long count = argc == 3 ? std::atol(argv[2]) : 0;
    if (desks < 1 || desks > MAX_DESKS || count < 1) {
        std::fprintf(stderr, "usage: account_mutexes THREADS SIZE (at most %d threads)\n", MAX_DESKS);
        return 2;
    }
    const std::vector<Sale> sales = make_sales();
    std::array<Account, MAX_DESKS> accounts;

    std::vector<std::thread> threads;
    for (int d = 0; d < desks; d++) {
        threads.emplace_back([&accounts, &sales, d, desks, count] {
            std::size_t next = static_cast<std::size_t>(d) * 131;
            for (long i = 0; i < count / desks; i++) {
                const Sale &sale = sales[next % sales.size()];
                const std::int64_t discount = sale.article % 10 == 0 ? sale.cents / 20 : 0;
                accounts[static_cast<std::size_t>(d)].book(sale.cents - discount);
                next += 1 + sale.article % 3;
            }
        });
    }
    for (std::thread &thread : threads)
        thread.join();

    std::uint64_t sum = 0;
    for (const Account &account : accounts)
        sum = sum * 31 + static_cast<std::uint64_t>(account.balance);
    std::printf("checksum %016lx\n", sum);
    return 0;
}
