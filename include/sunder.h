/* Functions by which a program talks to `sunder protect`. If `sunder protect` has not started
 * the program, they do nothing: they are looked up at their first use, and no library has to be
 * linked. For C and C++ on Linux; C libraries before glibc 2.34 need -ldl.
 *
 * Isolated bytes are private to each thread from one point of synchronisation to the next (locks,
 * atomic operations, system calls, calls of the C library), and for at most 10 ms; after that, a
 * thread sees what others wrote. So isolate memory of which each thread uses a part of its own,
 * such as the slots of an array. Do not isolate data that threads pass to each other by plain
 * loads and stores alone. */
#ifndef SUNDER_H
#define SUNDER_H

#include <dlfcn.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef int (*sunder_range_function)(void *, size_t);
typedef int (*sunder_plain_function)(void);

/* The preloaded library's function of this name; a null pointer without that library. */
static inline void *sunder_find(const char *name, void **kept, int *known) {
    if (!__atomic_load_n(known, __ATOMIC_ACQUIRE)) {
        __atomic_store_n(kept, dlsym((void *)0, name), __ATOMIC_RELAXED);
        __atomic_store_n(known, 1, __ATOMIC_RELEASE);
    }
    return __atomic_load_n(kept, __ATOMIC_RELAXED);
}

/* Asks to isolate these bytes, at most 64 KiB: each thread gets a private copy while it computes.
 * Returns 1 if they will be isolated as soon as possible, else 0. A block of `malloc` and similar
 * functions that was isolated from its start is shared again when it is freed; for other bytes,
 * call `sunder_share` before their memory is used for something else. */
static inline int sunder_isolate(void *start, size_t bytes) {
    static void *kept;
    static int known;
    void *found = sunder_find("sunder_isolation_isolate", &kept, &known);
    return found ? ((sunder_range_function)found)(start, bytes) : 0;
}

/* Ends the isolation of the bytes that were isolated from `start` on: all threads share them
 * again. Returns 1 if they were isolated. */
static inline int sunder_share(void *start, size_t bytes) {
    static void *kept;
    static int known;
    void *found = sunder_find("sunder_isolation_share", &kept, &known);
    return found ? ((sunder_range_function)found)(start, bytes) : 0;
}

/* Commits what this thread wrote, so that all threads see it; this thread then sees what the
 * others have committed. */
static inline void sunder_commit(void) {
    static void *kept;
    static int known;
    void *found = sunder_find("sunder_isolation_commit", &kept, &known);
    if (found) ((sunder_plain_function)found)();
}

/* Whether the program is protected and threads can be isolated now. */
static inline int sunder_is_active(void) {
    static void *kept;
    static int known;
    void *found = sunder_find("sunder_isolation_is_active", &kept, &known);
    return found ? ((sunder_plain_function)found)() : 0;
}

#ifdef __cplusplus
}
#endif
#endif
