// Containers made at different lines of one function, built without
// optimisation: a dozen library frames lie between them and malloc. Each line
// printed: address and the source line of its allocation.
#include <cstdio>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <unistd.h>
#include <vector>

struct Item { long a, b, c; };

template <class T> static void say(const T *at, int line) { std::printf("%p %d\n", (const void *)at, line); }

__attribute__((noinline)) static void make() {
    static char buffer[1 << 16];
    std::setvbuf(stdout, buffer, _IOFBF, sizeof buffer);
    std::vector<std::vector<long>> kept;
    std::list<Item> items;
    std::map<int, Item> table;
    for (int i = 0; i < 20; i++) {
        auto *first = new std::vector<long>(100 + i); int a = __LINE__;
        auto *second = new std::vector<long>(100 + i); int b = __LINE__;
        auto *one = new std::string(200 + i, 'x'); int c = __LINE__;
        auto *two = new std::string(200 + i, 'y'); int d = __LINE__;
        auto *shared = new std::shared_ptr<Item>(std::make_shared<Item>()); int e = __LINE__;
        auto *again = new std::shared_ptr<Item>(std::make_shared<Item>()); int f = __LINE__;
        items.push_back(Item{}); int g = __LINE__;
        const Item *pushed = &items.back();
        items.push_back(Item{}); int h = __LINE__;
        Item *inserted = &table[i]; int j = __LINE__;
        Item *other = &table[i + 1000]; int k = __LINE__;
        auto *plain = new Item; int l = __LINE__;
        auto *array = new Item[3]; int m = __LINE__;
        say(first->data(), a), say(second->data(), b), say(one->data(), c), say(two->data(), d);
        say(shared->get(), e), say(again->get(), f), say(pushed, g), say(&items.back(), h);
        say(inserted, j), say(other, k), say(plain, l), say(array, m);
    }
    std::printf("ready\n");
    std::fflush(stdout);
    char c;
    while (read(0, &c, 1) > 0) {}
}

int main() { make(); }
