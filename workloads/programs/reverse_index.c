/* Inverts the links of pages: which pages link to a page. Each thread scans its pages
 * and adds the links to a list of its own. The lengths of all lists are in one array,
 * which is written for each link found. Between two links there is much to read, so the
 * sharing costs little.
 * After: Phoenix; SHERIFF section 6.1, Figure 4, Table 3 (2.4%). */
#include "workload.h"

enum { PAGE = 4096, PAGES = 64, STRIDE = IS_FIXED ? LINE / sizeof(int32_t) : 1 };

struct link {
    uint32_t target, page;
};

static char *pages; /* [PAGES][PAGE] */
static struct link **links;
static int32_t *use_len;

static OPAQUE void insert(long id, uint32_t target, uint32_t page) {
    links[id][use_len[id * STRIDE]] = (struct link){target, page};
    use_len[id * STRIDE]++; /* touch: use_len */
}

static OPAQUE void scan(long id, uint32_t number) {
    const char *at = &pages[(long)(number % PAGES) * PAGE];
    for (const char *end = at + PAGE; (at = strchr(at, '<')) != NULL && at < end; at++)
        if (strncmp(at, "<a href=", 8) == 0) insert(id, (uint32_t)strtoul(at + 8, NULL, 10), number);
}

static void work(struct part *part) {
    for (long i = part->begin; i < part->end; i++) scan(part->id, (uint32_t)i);
}

/* Text, tags, and about four links a page. */
static void make_pages(void) {
    pages = malloc(PAGES * PAGE + 1);
    for (long i = 0; i < PAGES * PAGE; i++) {
        uint64_t n = scramble((uint64_t)i);
        pages[i] = n % 40 == 0 ? '<' : (char)('a' + n % 26);
    }
    for (long p = 0; p < PAGES; p++)
        for (long l = 0; l < 4; l++) {
            char tag[32];
            int length = snprintf(tag, sizeof tag, "<a href=%ld>", (p * 7 + l * 13) % 100);
            memcpy(&pages[p * PAGE + 100 + l * 1000], tag, (size_t)length);
        }
    pages[PAGES * PAGE] = 0;
}

int main(int argc, char **argv) {
    struct arguments a = read_arguments(argc, argv);
    make_pages();
    links = malloc((size_t)a.threads * sizeof *links);
    size_t bytes = (size_t)a.threads * STRIDE * sizeof *use_len;
    /* Where the fixed variant's lengths have no line to themselves, `links` is on the first. */
    use_len = IS_FIXED ? aligned_alloc(LINE, bytes) : malloc(bytes); /* alloc: use_len */
    memset(use_len, 0, bytes);
    for (long i = 0; i < a.threads; i++)
        links[i] = malloc((size_t)(a.size / a.threads + 1) * 8 * sizeof **links);
    run_threads(a, work);
    uint64_t sum = 0;
    for (long i = 0; i < a.threads; i++) {
        for (int32_t k = 0; k < use_len[i * STRIDE]; k++)
            sum += scramble(links[i][k].target) * (links[i][k].page + 1ul);
        free(links[i]);
    }
    print_checksum(sum);
    free(use_len);
    free(links);
    free(pages);
    return 0;
}
