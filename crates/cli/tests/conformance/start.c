/* What a program finds at its start: the environment, and behind it the auxiliary vector. */
#include "check.h"
#include <elf.h>
#include <fcntl.h>
#include <sys/auxv.h>

extern char **environ;

static size_t whole(const char *path, char *bytes, size_t room) {
    int fd = open(path, O_RDONLY);
    CHECK(fd >= 0);
    size_t used = 0;
    ssize_t got;
    while ((got = read(fd, bytes + used, room - used)) > 0) used += (size_t)got;
    CHECK(got == 0 && used < room);
    close(fd);
    return used;
}

/* The vector behind the environment is the one that the kernel shows, in the same order. Go's
 * runtime and others look for it there. */
static void vector(void) {
    char **behind = environ;
    while (*behind != NULL) behind++;
    Elf64_auxv_t *own = (Elf64_auxv_t *)(behind + 1);
    static Elf64_auxv_t shown[64];
    size_t count = whole("/proc/self/auxv", (char *)shown, sizeof shown) / sizeof *shown;
    CHECK(count > 10);
    for (size_t i = 0; i < count; i++) {
        while (own->a_type == AT_IGNORE) own++;
        CHECK(own->a_type == shown[i].a_type);
        if (own->a_type == AT_NULL) break;
        CHECK(own->a_un.a_val == shown[i].a_un.a_val);
        own++;
    }
    CHECK(own->a_type == AT_NULL);
    unsigned long random = getauxval(AT_RANDOM), header = getauxval(AT_SYSINFO_EHDR);
    for (size_t i = 0; i < count; i++) {
        if (shown[i].a_type == AT_RANDOM) CHECK(shown[i].a_un.a_val == random);
        if (shown[i].a_type == AT_SYSINFO_EHDR) CHECK(shown[i].a_un.a_val == header);
    }
}

/* The list that the kernel shows has the same strings, and nothing else. */
static void environment(void) {
    static char shown[1 << 20];
    size_t bytes = whole("/proc/self/environ", shown, sizeof shown);
    char **next = environ;
    for (size_t at = 0; at < bytes;) {
        if (shown[at] == 0) {
            at++;
            continue;
        }
        CHECK(*next != NULL && strcmp(*next, shown + at) == 0);
        at += strlen(*next++);
    }
    CHECK(*next == NULL);
}

/* The variables are the user's, in the order that they have natively. The heap's library stays,
 * because it goes into the programs that this one starts. */
static void variables(void) {
    int has_heap = getenv("SUNDER_HEAP") != NULL;
    for (char **next = environ; *next != NULL; next++)
        if (!has_heap || (strncmp(*next, "SUNDER_HEAP=", 12) != 0 && strncmp(*next, "LD_PRELOAD=", 11) != 0))
            puts(*next);
}

static void *work(void *number) {
    heat((long)number, 20000 * scale);
    return NULL;
}

int main(int argc, char **argv) {
    arguments(argc, argv);
    vector();
    environment();
    variables();
    in_threads(work);
    for (long i = 0; i < THREADS; i++) cool(i, 20000 * scale);
    vector();
    environment();
    printf("%s %d\n", argv[0], argc);
    return 0;
}
