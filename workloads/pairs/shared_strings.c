/* Strings with a reference count, as a small runtime library has them. The
 * loader allocates the names of all threads in turn, so two names of different
 * threads lie on one cache line, and with them their reference counts. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_THREADS = 16, NAMES = 16 };

struct string {
    atomic_uint references;
    uint32_t length;
    char text[12];
};

static struct string *names[MAX_THREADS][NAMES];
static long lookups;

static struct string *string_new(const char *text) {
#if FIXED
    struct string *s = aligned_alloc(64, 64);
#else
    struct string *s = malloc(sizeof *s);
#endif
    atomic_init(&s->references, 1);
    s->length = (uint32_t)strlen(text);
    memcpy(s->text, text, s->length + 1);
    return s;
}

static struct string *string_keep(struct string *s) {
    atomic_fetch_add_explicit(&s->references, 1, memory_order_relaxed);
    return s;
}

static void string_release(struct string *s) {
    if (atomic_fetch_sub_explicit(&s->references, 1, memory_order_acq_rel) == 1)
        free(s);
}

static void *look_up(void *argument) {
    int id = (int)(intptr_t)argument;
    uint64_t digest = 14695981039346656037u;
    for (long i = 0; i < lookups; i++) {
        struct string *s = string_keep(names[id][i % NAMES]);
        for (uint32_t k = 0; k < s->length; k++)
            digest = (digest ^ (unsigned char)s->text[k]) * 1099511628211u;
        string_release(s);
    }
    return (void *)(uintptr_t)digest;
}

int main(int argc, char **argv) {
    int threads = argc > 1 ? atoi(argv[1]) : 2;
    lookups = argc > 2 ? atol(argv[2]) : 20000000;
    if (threads < 1 || threads > MAX_THREADS || lookups < 1) {
        fprintf(stderr, "usage: %s THREADS LOOKUPS\n", argv[0]);
        return 2;
    }
    for (int n = 0; n < NAMES; n++) {
        for (int t = 0; t < threads; t++) {
            char text[12];
            snprintf(text, sizeof text, "t%02dn%02d", t, n);
            names[t][n] = string_new(text);
        }
    }
    pthread_t workers[MAX_THREADS];
    for (int t = 0; t < threads; t++)
        pthread_create(&workers[t], NULL, look_up, (void *)(intptr_t)t);
    uint64_t sum = 0;
    for (int t = 0; t < threads; t++) {
        void *digest;
        pthread_join(workers[t], &digest);
        sum = sum * 31 + (uintptr_t)digest;
        for (int n = 0; n < NAMES; n++)
            string_release(names[t][n]);
    }
    printf("checksum %016lx\n", (unsigned long)sum);
    return 0;
}
