/* Counts the words of a text. Each thread has a sorted list of its words. The lengths of
 * all lists are in one array, which a thread reads for each word and writes for each new
 * one. New words are rare, so the sharing costs nothing.
 * After: Phoenix; SHERIFF sections 6.1 and 6.1.1, Table 3 (1%). */
#include "workload.h"

enum { WORD = 16, TEXT = 1 << 14, VOCABULARY = 3000, STRIDE = IS_FIXED ? LINE / sizeof(int32_t) : 1 };

struct entry {
    char word[WORD];
    uint64_t count;
};

static char *text; /* [TEXT][WORD] */
static struct entry **words;
static int32_t *use_len;

static OPAQUE void add_word(long id, const char *word) {
    struct entry *list = words[id];
    int32_t low = 0, high = use_len[id * STRIDE]; /* touch: read */
    while (low < high) {
        int32_t middle = (low + high) / 2;
        int order = strcmp(word, list[middle].word);
        if (order == 0) {
            list[middle].count++;
            return;
        }
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    memmove(&list[low + 1], &list[low], (size_t)(use_len[id * STRIDE] - low) * sizeof *list);
    memcpy(list[low].word, word, WORD);
    list[low].count = 1;
    use_len[id * STRIDE]++; /* touch: write */
}

static void work(struct part *part) {
    for (long i = part->begin; i < part->end; i++)
        add_word(part->id, &text[scramble((uint64_t)i) % TEXT * WORD]);
}

static void make_text(void) {
    text = malloc(TEXT * WORD);
    memset(text, 0, TEXT * WORD);
    for (long i = 0; i < TEXT; i++) {
        uint64_t n = scramble(scramble((uint64_t)i) % VOCABULARY);
        for (uint64_t k = 0; k < 4 + n % 10; k++) text[i * WORD + (long)k] = (char)('a' + (scramble(n + k) % 26));
    }
}

int main(int argc, char **argv) {
    struct arguments a = read_arguments(argc, argv);
    make_text();
    words = malloc((size_t)a.threads * sizeof *words);
    use_len = calloc((size_t)a.threads * STRIDE, sizeof *use_len); /* alloc: use_len */
    for (long i = 0; i < a.threads; i++) words[i] = aligned_alloc(LINE, (VOCABULARY + 8) * sizeof **words);
    run_threads(a, work);
    uint64_t sum = 0;
    for (long i = 0; i < a.threads; i++) {
        for (int32_t k = 0; k < use_len[i * STRIDE]; k++) {
            uint64_t spelling;
            memcpy(&spelling, words[i][k].word, sizeof spelling);
            sum += words[i][k].count * scramble(spelling);
        }
        free(words[i]);
    }
    print_checksum(sum);
    free(use_len);
    free(words);
    free(text);
    return 0;
}
