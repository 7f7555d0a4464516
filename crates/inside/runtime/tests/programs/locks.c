/* Locks all its memory and checks that it is locked. It has some mappings of 40 MB in total
 * before that. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
static long resident(void) {
    long size, pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (!f || fscanf(f, "%ld %ld", &size, &pages) != 2) exit(9);
    fclose(f);
    return pages * sysconf(_SC_PAGESIZE);
}
int main(void) {
    char *a = mmap(NULL, 40 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *n = mmap(NULL, 1 << 20, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (a == MAP_FAILED || n == MAP_FAILED) return 1;
    if (mlockall(MCL_CURRENT | MCL_FUTURE)) { printf("refused: %s\n", strerror(errno)); return 0; }
    long r = resident();
    if (r < 40 << 20) return 2; /* not filled */
    if (r > 400L << 20) return 3; /* more than ours */
    char *b = mmap(NULL, 30 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (b == MAP_FAILED || resident() < 70 << 20) return 4; /* later ones too */
    printf("locked\n");
    return munlockall();
}
