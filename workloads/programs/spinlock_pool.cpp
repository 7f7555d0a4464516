// A pool of small spin locks, as boost's smart pointers use for operations that the
// CPU can't do atomically: an object's address chooses the lock. Two threads take
// locks for objects of their own, never the same lock, but the locks lie on one
// line. Plastic section 2 names it as found in production software.
#include "workload.h"
#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>

class OWN_LINE spinlock {
  public:
    void lock() noexcept {
        int spins = 0;
        while (word.exchange(1, std::memory_order_acquire) != 0) // touch: lock
            be_patient(&spins);
    }
    void unlock() noexcept { word.store(0, std::memory_order_release); } // touch: unlock

  private:
    std::atomic<std::uint32_t> word{0};
};

// A prime number of locks, as is usual for pools.
class spinlock_pool {
  public:
    spinlock &lock_for(const void *object) noexcept {
        return locks[reinterpret_cast<std::uintptr_t>(object) / LINE % locks.size()];
    }

  private:
    ON_LINE std::array<spinlock, 41> locks;
};

spinlock_pool pool;

// One object on each line; neighbours get neighbouring locks.
struct ON_LINE account {
    std::uint64_t balance = 0;
    std::uint64_t bookings = 0;
};

// The first object whose lock is the first of the pool, so that the layout does not
// depend on the program's load address.
static account *first_account(account *all, std::size_t count) {
    for (std::size_t i = 0; i < count; i++)
        if (reinterpret_cast<std::uintptr_t>(&all[i]) / LINE % 41 == 0) return &all[i];
    return all;
}

static account storage[41 + MAX_THREADS];
static account *accounts;

static OPAQUE void book(account &a, std::uint64_t amount) {
    std::lock_guard<spinlock> guard(pool.lock_for(&a));
    a.balance += amount;
    a.bookings++;
}

static void work(struct part *part) {
    account &mine = accounts[part->id];
    for (long i = part->begin; i < part->end; i++)
        book(mine, scramble(static_cast<std::uint64_t>(i)) % 1000);
}

int main(int argc, char **argv) {
    struct arguments a = read_arguments(argc, argv);
    accounts = first_account(storage, 41);
    check_layout(on_one_line(&pool.lock_for(&accounts[0]), &pool.lock_for(&accounts[1])) != IS_FIXED, "pool");
    run_threads(a, work);
    std::uint64_t sum = 0;
    for (long i = 0; i < a.threads; i++) sum += accounts[i].balance + accounts[i].bookings;
    print_checksum(sum);
    return 0;
}
