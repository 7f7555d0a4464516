// C++: namespaces, bases, atomics, containers, templates.
#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace app {
struct Base {
    long id;
};
struct Stats : Base {
    std::atomic<long> hits;
    std::mutex guard;
    std::array<int, 4> bins;
    static long made;
};
long Stats::made;
Stats table[4];
std::atomic<long> counters[4];
std::unique_ptr<Stats> owner;
std::vector<std::string> words;

struct Pool {
    std::vector<Stats *> members;
    Stats own[2];
    void run(int i);
};

__attribute__((noinline)) void Pool::run(int i)
{
    members[i]->id++;      // LINE member
    own[i].id++;           // LINE own
    owner->bins[i]++;      // LINE owner
}

__attribute__((noinline)) void touch(Stats &s)
{
    s.id += 2; // LINE reference
}
}

template <class T>
__attribute__((noinline)) T *pick(std::vector<T> &v, int i)
{
    static long picks;
    picks++;
    return &v[i];
}

int main(int argc, char **)
{
    app::Pool pool;
    pool.members.push_back(&app::table[1]);
    pool.members.push_back(&app::table[2]);
    app::owner = std::make_unique<app::Stats>();
    app::words.push_back("x");
    pool.run(argc & 1);
    app::touch(app::table[argc & 1]);
    auto shared = std::make_shared<app::Base>();
    auto second = shared;
    second->id = argc;
    std::vector<app::Stats> all(3);
    pick(all, argc)->bins[2]++;
    return static_cast<int>(app::Stats::made++ + app::counters[2]++ + app::table[0].hits++);
}
