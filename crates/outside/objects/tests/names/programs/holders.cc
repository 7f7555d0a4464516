// Blocks that are held by containers, smart pointers and fields of objects.
#include "recorder.h"
#include <map>
#include <memory>
#include <vector>

struct Slot { long key = 0, value = 0; };
std::vector<Slot> everything;

struct Pool {
    long size;
    Slot *slots;
    std::vector<Slot> all;
    std::unique_ptr<Slot[]> owned;
    NOINLINE Pool(int n) : size(n)
    {
        slots = new Slot[n];
        tell("this->slots");
    }
    NOINLINE void grow(int n)
    {
        all.resize(n);
        tell("this->all");
    }
    NOINLINE void own(int n)
    {
        owned = std::make_unique<Slot[]>(n);
        tell("this->owned");
    }
};
// Several members that grow in one function, none of them the first.
struct Queues {
    std::vector<long> ids;
    std::vector<long> hits;
    std::vector<char> busy;
    NOINLINE void begin(int n)
    {
        ids.resize(100);
        hits.resize(n);
        tell("this->hits");
        busy.resize(n);
        tell("this->busy");
        // Keeps the compiler from making the last call a jump.
        KEEP(busy.data());
    }
};
NOINLINE static void local(int n)
{
    auto *slots = new Slot[n];
    tell("slots");
    KEEP(slots);
}
NOINLINE static void vector(int n)
{
    std::vector<Slot> counted(n);
    tell("counted");
    KEEP(counted.data());
}
NOINLINE static void grown(int n)
{
    std::vector<long> grown;
    grown.push_back(n);
    tell("grown");
    KEEP(grown.data());
}
NOINLINE static void global(int n)
{
    everything.resize(n);
    tell("everything");
}
NOINLINE static void shared()
{
    auto shared = std::make_shared<Slot>();
    tell("shared");
    KEEP(shared.get());
}
NOINLINE static void unique()
{
    auto unique = std::make_unique<Slot>();
    tell("unique");
    KEEP(unique.get());
}
NOINLINE static void map(int n)
{
    std::map<int, Slot> nodes;
    nodes[n].key++;
    tell("nodes");
}

int main(int argc, char **)
{
    Pool pool(argc);
    pool.grow(argc);
    pool.own(argc);
    Queues queues;
    queues.begin(argc);
    local(argc);
    vector(argc);
    grown(argc);
    global(argc);
    shared();
    unique();
    map(argc);
    mappings();
}
