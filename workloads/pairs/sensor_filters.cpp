// Smoothing of sensor signals. Every thread feeds the samples of one sensor to a
// filter object through a virtual method. The filters are small and are made by
// `new` one after the other, so that neighbours in memory share cache lines.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#ifdef FIXED
#define FILTER_ALIGN alignas(64)
#else
#define FILTER_ALIGN
#endif

class FILTER_ALIGN Filter {
public:
    virtual ~Filter() = default;
    virtual float feed(float sample) = 0;
    virtual std::uint64_t state() const = 0;
};

class LowPass : public Filter {
public:
    float feed(float sample) override {
        level_ += 0.125f * (sample - level_);
        low_ = level_ < low_ ? level_ : low_;
        count_++;
        return level_;
    }
    std::uint64_t state() const override {
        std::uint32_t bits;
        const float range = level_ - low_;
        std::memcpy(&bits, &range, sizeof bits);
        return bits + 31u * count_;
    }

private:
    float level_ = 0;
    float low_ = 0;
    std::uint64_t count_ = 0;
};

class PeakHold : public Filter {
public:
    float feed(float sample) override {
        peak_ = sample > peak_ ? sample : peak_ * 0.75f;
        last_ = sample;
        count_++;
        return peak_;
    }
    std::uint64_t state() const override {
        std::uint32_t bits;
        const float fall = peak_ - last_;
        std::memcpy(&bits, &fall, sizeof bits);
        return bits + 17u * count_;
    }

private:
    float peak_ = 0;
    float last_ = 0;
    std::uint64_t count_ = 0;
};

static std::unique_ptr<Filter> make_filter(int sensor) {
    if (sensor % 2 == 0)
        return std::unique_ptr<Filter>(new LowPass);
    return std::unique_ptr<Filter>(new PeakHold);
}

static void follow(Filter &filter, const std::vector<float> &signal, long samples) {
    std::vector<float> recent(256);
    for (long i = 0; i < samples; i++) {
        const auto at = static_cast<std::size_t>(i);
        recent[at % 256] = filter.feed(signal[at % signal.size()]);
    }
    filter.feed(recent[0] + recent[128]);
}

int main(int argc, char **argv) {
    const int threads = argc == 3 ? std::atoi(argv[1]) : 0;
    const long samples = argc == 3 ? std::atol(argv[2]) : 0;
    if (threads < 1 || threads > 64 || samples < 1) {
        std::fprintf(stderr, "usage: sensor_filters THREADS SIZE\n");
        return 2;
    }
    std::vector<float> signal(1024);
    for (std::size_t i = 0; i < signal.size(); i++)
        signal[i] = static_cast<float>(i * 7919 % 257) + 1;

    std::vector<std::unique_ptr<Filter>> filters(static_cast<std::size_t>(threads));
    for (int t = 0; t < threads; t++)
        filters[static_cast<std::size_t>(t)] = make_filter(t);

    std::vector<std::thread> readers;
    for (auto &filter : filters)
        readers.emplace_back(follow, std::ref(*filter), std::cref(signal), samples / threads);
    std::uint64_t sum = 0;
    for (std::size_t t = 0; t < filters.size(); t++) {
        readers[t].join();
        sum = sum * 31 + filters[t]->state();
    }
    std::printf("checksum %016lx\n", sum);
    return 0;
}
