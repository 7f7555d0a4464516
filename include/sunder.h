/* What a program may tell `sunder protect`, and ask it. Everything here does nothing, and
 * the program runs as ever, when it was not started by `sunder protect`: the functions are
 * looked up when they are first used. Nothing is linked. For C and C++ on Linux; C libraries
 * before glibc 2.34 need -ldl.
 *
 * Bytes that are isolated are for each thread its own between two points of synchronisation (locks,
 * atomic operations, system calls, calls of the C library), and not longer than 10 ms: what others wrote
 * is seen after that. So isolate what each thread uses a part of for itself, as slots of
 * an array, and nothing that threads tell each other by plain loads and stores alone. */
#ifndef SUNDER_H
#define SUNDER_H

#include <dlfcn.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef int (*sunder_range_function)(void *, size_t);
typedef int (*sunder_plain_function)(void);

/* The function of this name that the preloaded library has; a null pointer without it. */
static inline void *sunder_find(const char *name, void **kept, int *known) {
    if (!__atomic_load_n(known, __ATOMIC_ACQUIRE)) {
        __atomic_store_n(kept, dlsym((void *)0, name), __ATOMIC_RELAXED);
        __atomic_store_n(known, 1, __ATOMIC_RELEASE);
    }
    return __atomic_load_n(kept, __ATOMIC_RELAXED);
}

/* Asks that threads have these bytes for themselves while they compute, at most 64 KiB. 1 if
 * they will as soon as that can be; 0 if not. A block of `malloc` or its kin that was isolated
 * from its start is shared again by itself when it is freed; other bytes must be shared before
 * their memory is used for something else. */
static inline int sunder_isolate(void *start, size_t bytes) {
    static void *kept;
    static int known;
    void *found = sunder_find("sunder_isolation_isolate", &kept, &known);
    return found ? ((sunder_range_function)found)(start, bytes) : 0;
}

/* Takes that back for bytes that were isolated from `start` on: after it all threads share them
 * again. 1 if they were isolated. */
static inline int sunder_share(void *start, size_t bytes) {
    static void *kept;
    static int known;
    void *found = sunder_find("sunder_isolation_share", &kept, &known);
    return found ? ((sunder_range_function)found)(start, bytes) : 0;
}

/* What this thread wrote is seen by all after it, and it sees what all others have
 * committed. */
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
