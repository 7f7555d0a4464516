// Doors of a building, each driven by one thread: a door is in a state, an object with virtual functions,
// which handles each event and says which state follows. The doors are small and lie in one vector, so
// several are on one cache line.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

namespace {

struct Door;

struct State {
    virtual void handle(Door &door, unsigned event) const = 0;

protected:
    ~State() = default;
};

#ifdef FIXED
struct alignas(64) Door {
#else
struct Door {
#endif
    const State *state;
    uint32_t passed;
    uint32_t alarms;
    uint32_t handled;
};

struct Open final : State {
    void handle(Door &door, unsigned event) const override;
};
struct Closed final : State {
    void handle(Door &door, unsigned event) const override;
};
struct Locked final : State {
    void handle(Door &door, unsigned event) const override;
};
struct Forced final : State {
    void handle(Door &door, unsigned event) const override;
};

const Open open_state;
const Closed closed_state;
const Locked locked_state;
const Forced forced_state;

void Open::handle(Door &door, unsigned event) const {
    door.handled++;
    if (event % 4 == 0)
        door.state = &closed_state;
    else
        door.passed += event & 1;
}

void Closed::handle(Door &door, unsigned event) const {
    door.handled++;
    if (event % 3 == 0)
        door.state = &open_state;
    else if (event % 5 == 0)
        door.state = &locked_state;
    else
        door.passed ^= event << 3;
}

void Locked::handle(Door &door, unsigned event) const {
    door.handled++;
    if (event % 7 == 0)
        door.state = &forced_state;
    else if (event % 2 == 0)
        door.state = &closed_state;
    else
        door.alarms += event >> 7;
}

void Forced::handle(Door &door, unsigned event) const {
    door.alarms++;
    if (event % 2 == 0)
        door.state = &locked_state;
}

void drive(Door &door, unsigned seed, long events) {
    // An hour like every other: people come and go, now and then somebody has no key.
    unsigned hour[40];
    for (unsigned n = 0; n < 40; n++)
        hour[n] = (n * n + seed) % 11;
    for (long n = 0; n < events; n++)
        door.state->handle(door, hour[n % 40]);
}

} // namespace

int main(int argc, char **argv) {
    int threads = argc > 1 ? std::atoi(argv[1]) : 2;
    long events = argc > 2 ? std::atol(argv[2]) : 60000000;
    if (threads < 1 || threads > 32 || events < 1) {
        std::fprintf(stderr, "usage: %s THREADS EVENTS\n", argv[0]);
        return 2;
    }
    std::vector<Door> doors(threads, Door{&closed_state, 0, 0, 0});
    std::vector<std::thread> drivers;
    for (int t = 0; t < threads; t++)
        drivers.emplace_back(drive, std::ref(doors[t]), 77u + 13u * t, events);
    uint64_t sum = 0;
    for (int t = 0; t < threads; t++) {
        drivers[t].join();
        sum = sum * 31 + doors[t].passed + 7ull * doors[t].alarms;
    }
    std::printf("checksum %016llx\n", (unsigned long long)sum);
}
