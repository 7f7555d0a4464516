// C++: virtual base classes, and static members of class templates.
#include <atomic>

struct VirtualBase {
    std::atomic<long> shared{0};
    virtual ~VirtualBase() {}
};

struct Left : virtual VirtualBase {
    std::atomic<long> left{0};
};

// Left's own part has 16 bytes here, and 32 if it is by itself.
struct Joined : Left {
    std::atomic<char> small{0};
    std::atomic<long> joined{0};
};

Joined joined;

// It is at the end of the whole object, where Holder begins its own members again.
struct Holder {
    Left part;
    char tag;
    long last;
};

Holder holder;

namespace app {
template <class T>
struct Table {
    static T first, second;
    struct Inner {
        static long third;
    };
};
template <class T>
T Table<T>::first;
template <class T>
T Table<T>::second;
template <class T>
long Table<T>::Inner::third;
} // namespace app

int main() {
    joined.joined.fetch_add(1);
    joined.shared.fetch_add(1);
    app::Table<std::atomic<long>>::first++;
    app::Table<std::atomic<long>>::second++;
    app::Table<std::atomic<long>>::Inner::third++;
    return holder.tag;
}
