// Locks of the C++ library.
#include <memory>
#include <mutex>
#include <shared_mutex>

struct Account {
    long number = 0;
    std::mutex lock;
    long balance = 0;
    std::shared_mutex readers;
};

Account bank[4];
std::mutex whole;
long total;

__attribute__((noinline)) void deposit(Account &account, long n)
{
    std::lock_guard<std::mutex> guard(account.lock); // LINE guard
    account.balance += n;
}

__attribute__((noinline)) void by_hand(long n)
{
    whole.lock(); // LINE lock
    total += n;
    whole.unlock(); // LINE unlock
}

__attribute__((noinline)) void read(Account *account)
{
    account->readers.lock_shared(); // LINE shared
    total += account->balance;
    account->readers.unlock_shared(); // LINE unshared
}

int main(int argc, char **)
{
    auto account = std::make_unique<Account>();
    deposit(*account, argc);
    deposit(bank[argc & 3], argc);
    by_hand(argc);
    read(account.get());
    return 0;
}
