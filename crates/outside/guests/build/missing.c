/* What the build machine's glibc has in the archive that is linked into every library, and old glibc
 * in no other. It is linked into each library that goes into other programs, and hidden there. */
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define HIDDEN __attribute__((visibility("hidden")))

/* Of this library: what it registers is forgotten when it is unloaded. */
extern void *__dso_handle HIDDEN;
int __register_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void), void *library);

HIDDEN int pthread_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void)) {
    return __register_atfork(prepare, parent, child, __dso_handle);
}

/* Before 2.33. The names are those that Rust's standard library calls. The structure is the kernel's on
 * x86-64. `syscall` sets errno. */
int by_path(const char *path, struct stat *into) __asm__("stat64");
int by_descriptor(int file, struct stat *into) __asm__("fstat64");

HIDDEN int by_path(const char *path, struct stat *into) {
    return (int)syscall(SYS_stat, path, into);
}

HIDDEN int by_descriptor(int file, struct stat *into) {
    return (int)syscall(SYS_fstat, file, into);
}
