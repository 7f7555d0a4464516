// Reference counts of shared pointers: each thread copies and drops pointers to an
// object of its own. std::make_shared placed the control blocks one after the other,
// so they lie on one line.
#include "workload.h"
#include <cstdint>
#include <memory>
#include <vector>

struct OWN_LINE document {
    std::uint32_t id;
};

static std::vector<std::shared_ptr<const document>> documents;

// By value, as in an interface that keeps its argument.
static OPAQUE std::uint64_t look_at(std::shared_ptr<const document> d) { return d->id; }

static void work(struct part *part) {
    const std::shared_ptr<const document> &mine = documents[static_cast<std::size_t>(part->id)];
    std::uint64_t sum = 0;
    for (long i = part->begin; i < part->end; i++) sum += look_at(mine); // touch: copy
    if (sum != static_cast<std::uint64_t>(part->end - part->begin) * mine->id) abort();
}

int main(int argc, char **argv) {
    struct arguments a = read_arguments(argc, argv);
    documents.reserve(MAX_THREADS);
    lead_heap_to(24, 0);
    for (long i = 0; i < a.threads; i++)
        documents.push_back(std::make_shared<const document>(document{7})); // alloc: document
    if (a.threads > 1)
        check_layout(on_one_line(documents[0].get(), documents[1].get()) != IS_FIXED, "documents");
    run_threads(a, work);
    std::uint64_t sum = 0;
    for (const auto &d : documents) sum += static_cast<std::uint64_t>(d.use_count() - 1) + d->id / 8;
    print_checksum(sum + static_cast<std::uint64_t>(a.size));
    return 0;
}
