// Edge detection in a grey image. Every thread marks the edges in a band of rows
// and counts them in its element of a std::vector<int>, by index, in a lambda
// that captures everything by reference. The byte written to the mask may be
// anything to the compiler, so the count goes to memory at every pixel.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

constexpr int WIDTH = 256;
constexpr int HEIGHT = 256;
#ifdef FIXED
constexpr int STRIDE = 64 / sizeof(int); // one count to a cache line
constexpr int FIRST = STRIDE;            // and none beside foreign data
#else
constexpr int STRIDE = 1;
constexpr int FIRST = 0;
#endif

using Image = std::vector<std::uint8_t>;

static Image make_image() {
    Image image(WIDTH * HEIGHT);
    std::uint32_t noise = 12345;
    for (int y = 0; y < HEIGHT; y++) {
        for (int x = 0; x < WIDTH; x++) {
            noise = noise * 1103515245u + 12345u;
            const int shape = (x / 24 + y / 40) % 2 * 120;
            image[static_cast<std::size_t>(y * WIDTH + x)] =
                static_cast<std::uint8_t>(shape + static_cast<int>(noise >> 26));
        }
    }
    return image;
}

int main(int argc, char **argv) {
    const int threads = argc == 3 ? std::atoi(argv[1]) : 0;
    const int passes = argc == 3 ? std::atoi(argv[2]) : 0;
    if (threads < 1 || threads > 64 || passes < 1) {
        std::fprintf(stderr, "usage: edge_counts THREADS SIZE\n");
        return 2;
    }
    const Image image = make_image();
    Image mask(image.size());
    std::vector<int> edges(static_cast<std::size_t>(FIRST + (threads + 1) * STRIDE));

    std::vector<std::thread> workers;
    for (int t = 0; t < threads; t++) {
        workers.emplace_back([&, t] {
            const int top = 1 + (HEIGHT - 2) * t / threads;
            const int bottom = 1 + (HEIGHT - 2) * (t + 1) / threads;
            for (int pass = 0; pass < passes; pass++) {
                const int limit = 24 + pass % 64;
                for (int y = top; y < bottom; y++) {
                    for (int x = 1; x < WIDTH - 1; x++) {
                        const std::uint8_t *p = &image[static_cast<std::size_t>(y * WIDTH + x)];
                        const int dx = p[1] - p[-1];
                        const int dy = p[WIDTH] - p[-WIDTH];
                        const bool edge = std::abs(dx) + std::abs(dy) > limit;
                        mask[static_cast<std::size_t>(y * WIDTH + x)] = edge ? 255 : 0;
                        edges[static_cast<std::size_t>(FIRST + t * STRIDE)] += edge;
                    }
                }
            }
        });
    }
    for (std::thread &worker : workers)
        worker.join();

    std::uint64_t sum = 0;
    for (int t = 0; t < threads; t++)
        sum = sum * 31 + static_cast<std::uint32_t>(edges[static_cast<std::size_t>(FIRST + t * STRIDE)]);
    for (std::uint8_t m : mask)
        sum = (sum ^ m) * 0x100000001b3u;
    std::printf("checksum %016lx\n", sum);
    return 0;
}
