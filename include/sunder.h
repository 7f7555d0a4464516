/* Two interfaces to `sunder protect`, for C and C++ on Linux. No library has to be linked; C
 * libraries before glibc 2.34 need -ldl for the first one.
 *
 * 1. For a program that is protected: which of its bytes are isolated (`sunder_isolate` and its
 *    neighbours). If `sunder protect` has not started the program, these functions do nothing.
 * 2. For a tool beside that program: what its isolated threads commit (`sunder_commits_open` and
 *    `sunder_commits_next`). It reads what `sunder protect --commits FILE -- PROGRAM` writes.
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
#include <stdint.h>
#include <stdio.h>
#include <string.h>

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

/* ---- What isolated threads commit -------------------------------------------------------------
 *
 * A stream has a head and records, in the order in which they were taken from the threads: nearly
 * that of time, and exactly so for the records of one thread. It is written while the program runs,
 * by `sunder` and not by the program, so a reader can do nothing to the program. The file may be a
 * named pipe: then `sunder` waits for its reader before it starts the program. A reader that is too
 * slow, or gone, never holds the program up; what it misses is counted in SUNDER_LOST.
 *
 * Only private pages are in it, while threads are isolated: writes of native threads, writes to
 * other pages, reads, and writes of the value that was there before are not seen. */

/* The version of the stream. It is raised only by a change that an older reader can't follow;
 * readers skip kinds of records that they do not know, and what is behind the fields they know. */
#define SUNDER_COMMITS_VERSION 1

enum sunder_kind {
    /* A commit wrote bytes of a line (64 bytes at `address`) that the thread had changed: a bit in
     * `bytes` for each, the lowest for the first. They were written after `since` (when the thread
     * committed before, or its episode began) and committed at `time`. `both` has those bytes that
     * others committed too in between: nothing that Sunder sees ordered the two writes. In
     * `instruction` is the one that first wrote to the page, and in `detail` where on the line, if
     * that is known (`--eager`). */
    SUNDER_CHANGE = 1,
    /* A thread is isolated from here on; and no longer, for one of `enum sunder_end` in `detail`.
     * Before the end everything is committed. A begin without an end means that no code ran. */
    SUNDER_BEGIN = 2,
    SUNDER_END = 3,
    /* The thread has a private copy of the page at `address` from here on, until its episode ends. */
    SUNDER_PRIVATE = 4,
    /* The page at `address` is shared again by all threads, for one of `enum sunder_shared`. */
    SUNDER_SHARED = 5,
    /* The thread's first write, at `address` by `instruction`, to a page whose writers are looked
     * for (`--eager`). */
    SUNDER_WRITE = 6,
    /* The pages of an object of `bytes` bytes at `address` are to be private. The text is its name;
     * empty if it is not known. */
    SUNDER_OBJECT = 16,
    /* The process executes another program: addresses of before mean nothing any more. */
    SUNDER_PROGRAM = 17,
    /* `bytes` records are missing here. */
    SUNDER_LOST = 18,
    /* No thread is isolated any more, for example because the program forked. The text says why. */
    SUNDER_CLOSED = 19,
    /* The program has ended, with the wait status in `detail`. The last record; a stream without it
     * is not complete. */
    SUNDER_EXIT = 20
};

/* Why an episode ended. All but the first and the last are places where the thread may synchronise
 * with others. */
enum sunder_end {
    SUNDER_END_RECALLED = 1,    /* Sunder wanted it, or a signal waits for the thread */
    SUNDER_END_SYSTEM_CALL = 2, /* a system call */
    SUNDER_END_MEMORY = 3,      /* memory that an isolated thread does not have */
    SUNDER_END_CODE = 4,        /* a locked instruction or a fence, or a call of the C library */
    SUNDER_END_EXCEPTION = 5,   /* another exception */
    SUNDER_END_SHARED = 8       /* a page must not be private any more */
};

/* Why a page is shared again; 0 if this thread has not seen why. */
enum sunder_shared {
    SUNDER_SHARED_OTHER_BYTES = 1, /* bytes beside the isolated objects changed on it */
    SUNDER_SHARED_SAME_BYTES = 2,  /* two threads changed the same bytes */
    SUNDER_SHARED_AWAITED = 3,     /* a thread got on only when it saw what others had written there */
    SUNDER_SHARED_COSTLY = 4       /* private copies of it cost too much */
};

/* A record. Times are of the monotonic clock, in nanoseconds; threads are the kernel's ids. Fields
 * of which a kind says nothing are 0. */
struct sunder_record {
    uint32_t kind, size, thread, detail;
    uint64_t time, since, address, bytes, both, instruction;
};

/* A stream that is being read. */
struct sunder_commits {
    FILE *in;
    uint32_t process; /* of the program */
    uint32_t version;
};

/* Reads so many bytes, and forgets those for which there is no room. */
static inline int sunder_commits_read(FILE *in, void *to, size_t room, size_t bytes) {
    size_t kept = bytes < room ? bytes : room;
    if (kept && fread(to, 1, kept, in) != kept) return 0;
    for (; kept < bytes; kept++)
        if (getc(in) == EOF) return 0;
    return 1;
}

/* Begins to read a stream. Returns 1; 0 if it is no stream, or one of a version that can't be
 * followed (`version` has the number then, and 0 if it is no stream). */
static inline int sunder_commits_open(struct sunder_commits *stream, FILE *in) {
    struct {
        char magic[8];
        uint32_t version, head_bytes, record_bytes, line_bytes, page_bytes, process;
        char rest[32];
    } head;
    stream->in = in;
    stream->process = stream->version = 0;
    if (!sunder_commits_read(in, &head, sizeof head, sizeof head)) return 0;
    if (memcmp(head.magic, "sundcomm", 8) != 0 || head.head_bytes < sizeof head) return 0;
    stream->version = head.version;
    stream->process = head.process;
    if (head.version != SUNDER_COMMITS_VERSION || head.head_bytes > 4096) return 0;
    return sunder_commits_read(in, NULL, 0, head.head_bytes - sizeof head);
}

/* Reads the next record, and its text into `text` (cut to `room` bytes with the final zero; may be
 * null with room 0). Waits if the program still runs. Returns 1; 0 at the end of the stream; -1 if
 * it is damaged, or cut off within a record. */
static inline int sunder_commits_next(struct sunder_commits *stream, struct sunder_record *record,
                                      char *text, size_t room) {
    size_t fixed = sizeof *record, kept = room ? room - 1 : 0, bytes;
    size_t got = fread(record, 1, fixed, stream->in);
    if (got == 0 && feof(stream->in)) return 0;
    if (got != fixed || record->size < fixed || record->size > 4096) return -1;
    bytes = record->size - fixed;
    if (room) text[bytes < kept ? bytes : kept] = 0;
    return sunder_commits_read(stream->in, text, kept, bytes) ? 1 : -1;
}

#ifdef __cplusplus
}
#endif
#endif
