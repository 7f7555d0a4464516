// Orders passed from one thread to another by a bounded queue. Some members of
// the queue belong to the producer, some to the consumer, and they are mixed on
// one line. Both sides read the other's position at times, which is real sharing;
// what each keeps for itself, and the place of the slots, is shared falsely.
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <thread>
#include <vector>

#ifdef FIXED
#define OWN_LINE alignas(64)
#else
#define OWN_LINE
#endif

struct Order {
    std::uint64_t id;
    std::uint64_t amount;
};

class alignas(64) OrderQueue {
public:
    explicit OrderQueue(std::size_t capacity) : slots_(capacity) {}

    bool push(const Order &order) {
        const std::size_t tail = tail_.load(std::memory_order_relaxed);
        if (tail - head_seen_ == slots_.size()) {
            head_seen_ = head_.load(std::memory_order_acquire);
            if (tail - head_seen_ == slots_.size())
                return false;
        }
        slots_[tail & (slots_.size() - 1)] = order;
        tail_.store(tail + 1, std::memory_order_release);
        return true;
    }

    bool pop(Order &order) {
        const std::size_t head = head_.load(std::memory_order_relaxed);
        if (head == tail_seen_) {
            tail_seen_ = tail_.load(std::memory_order_acquire);
            if (head == tail_seen_)
                return false;
        }
        order = slots_[head & (slots_.size() - 1)];
        head_.store(head + 1, std::memory_order_release);
        return true;
    }

private:
    std::vector<Order> slots_; // fixed after the start, read by both
    OWN_LINE std::atomic<std::size_t> tail_{0}; // producer
    std::size_t head_seen_ = 0;
    OWN_LINE std::atomic<std::size_t> head_{0}; // consumer
    std::size_t tail_seen_ = 0;
};

// The journal's hash: it goes on from order to order.
static std::uint64_t enter(std::uint64_t hash, const Order &order) {
    hash = (hash ^ order.id) * 0x100000001b3u;
    hash = (hash ^ order.amount) * 0x100000001b3u;
    return hash ^ hash >> 29;
}

static void produce(OrderQueue &queue, std::uint64_t orders) {
    for (std::uint64_t i = 0; i < orders; i++) {
        const Order order{i, i * 0x9e3779b97f4a7c15u >> 44};
        while (!queue.push(order))
            std::this_thread::yield();
    }
}

static void consume(OrderQueue &queue, std::uint64_t orders, std::uint64_t &digest) {
    std::uint64_t hash = 0;
    for (std::uint64_t i = 0; i < orders; i++) {
        Order order;
        while (!queue.pop(order))
            std::this_thread::yield();
        hash = enter(hash, order);
    }
    digest = hash;
}

int main(int argc, char **argv) {
    const int threads = argc == 3 ? std::atoi(argv[1]) : 0;
    const long orders = argc == 3 ? std::atol(argv[2]) : 0;
    if (threads < 2 || threads > 64 || threads % 2 != 0 || orders < 1) {
        std::fprintf(stderr, "usage: order_queue THREADS SIZE (an even number of threads)\n");
        return 2;
    }
    const auto pairs = static_cast<std::size_t>(threads / 2);
    const std::uint64_t each = static_cast<std::uint64_t>(orders) / pairs;
    std::vector<std::unique_ptr<OrderQueue>> queues;
    std::vector<std::uint64_t> digests(pairs);
    std::vector<std::thread> all;
    for (std::size_t p = 0; p < pairs; p++) {
        queues.push_back(std::make_unique<OrderQueue>(2048));
        all.emplace_back(produce, std::ref(*queues[p]), each);
        all.emplace_back(consume, std::ref(*queues[p]), each, std::ref(digests[p]));
    }
    for (std::thread &thread : all)
        thread.join();
    std::uint64_t sum = 0;
    for (std::uint64_t digest : digests)
        sum = sum * 31 + digest;
    std::printf("checksum %016lx\n", sum);
    return 0;
}
