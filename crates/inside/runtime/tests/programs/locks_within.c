/* Locks all its memory as a user who may lock so many MiB, or by a system call of its own ("raw"), and says what
 * came of it and whether memory that is mapped later is locked. */
#include <errno.h>
#include <grp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The kilobytes that are locked. */
static long locked(void) {
    char line[256];
    long found = -1;
    FILE *f = fopen("/proc/self/status", "r");
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "VmLck: %ld", &found) == 1) break;
    if (f) fclose(f);
    return found;
}

int main(int argc, char **argv) {
    if (argc < 2) return 1;
    int raw = !strcmp(argv[1], "raw");
    if (!raw) {
        rlim_t bytes = (rlim_t)atol(argv[1]) << 20;
        struct rlimit limit = {bytes, bytes};
        if (setrlimit(RLIMIT_MEMLOCK, &limit)) return 2;
        if (geteuid() == 0 && (setgroups(0, NULL) || setgid(65534) || setuid(65534))) return 3;
    }
    int flags = MCL_CURRENT | MCL_FUTURE;
    errno = 0;
    int result = raw ? (int)syscall(SYS_mlockall, flags) : mlockall(flags);
    printf("result %d, %s\n", result, strerror(errno));
    printf("some is locked: %d\n", locked() > 0);
    void *later = mmap(NULL, 2 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    printf("mapped later: %s\n", later == MAP_FAILED ? strerror(errno) : "yes");
    return 0;
}
