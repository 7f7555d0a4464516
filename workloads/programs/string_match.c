/* Enciphers words one by one into a buffer and compares them with enciphered keys.
 * Each thread has a buffer of its own, which it allocates itself; the fixed variant
 * aligns it.
 * After: Phoenix; SHERIFF Table 2 (no object) and section 6.4 (all sharing there
 * comes from the allocator). */
#include "workload.h"

enum { KEYS = 4, WORD = 24, WORDS = 1 << 14 };

static char *words; /* [WORDS][WORD] */
static char keys[KEYS][WORD] ON_LINE;
static uint64_t found[MAX_THREADS][LINE / sizeof(uint64_t)] ON_LINE;

static void make_word(char *word, uint64_t n) {
    n = scramble(n);
    long length = 6 + (long)(n % 12);
    memset(word, 0, WORD);
    for (long i = 0; i < length; i++) word[i] = (char)('a' + (scramble(n + (uint64_t)i) % 26));
}

static OPAQUE void encipher(char *buffer, const char *word) {
    int i = 0;
    for (; word[i] != 0; i++) buffer[i] = (char)((word[i] - 'a' + 3 + i) % 26 + 'a'); /* touch: buffer */
    buffer[i] = 0;
}

static OPAQUE uint64_t compare(const char *buffer) {
    uint64_t hits = 0;
    for (int k = 0; k < KEYS; k++) hits += strcmp(buffer, keys[k]) == 0;
    return hits;
}

static void work(struct part *part) {
    char *buffer = IS_FIXED ? aligned_alloc(LINE, LINE) : malloc(WORD); /* alloc: buffer */
    uint64_t hits = 0;
    for (long i = part->begin; i < part->end; i++) {
        encipher(buffer, &words[i % WORDS * WORD]);
        hits += compare(buffer);
    }
    found[part->id][0] = hits;
    free(buffer);
}

int main(int argc, char **argv) {
    struct arguments a = read_arguments(argc, argv);
    words = malloc(WORDS * WORD);
    for (uint64_t i = 0; i < WORDS; i++) make_word(&words[i * WORD], i % 4000);
    for (int k = 0; k < KEYS; k++) encipher(keys[k], &words[k * 1000 * WORD]);
    run_threads(a, work);
    uint64_t sum = (uint64_t)a.size << 32;
    for (long i = 0; i < a.threads; i++) sum += found[i][0];
    print_checksum(sum);
    free(words);
    return 0;
}
