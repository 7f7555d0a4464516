/* Compresses standard input to standard output as one frame of Zstandard, at the level that the
 * argument says. `pack.rs` builds it with the library that the program itself is linked with, and
 * runs it; the prototypes are those of zstd.h, which need not be installed. */
#include <stdio.h>
#include <stdlib.h>

size_t ZSTD_compressBound(size_t size);
size_t ZSTD_compress(void *to, size_t room, const void *from, size_t size, int level);
unsigned ZSTD_isError(size_t result);

int main(int count, char **arguments) {
    if (count != 2) return 2;
    size_t size = 0, room = 1 << 20;
    char *from = malloc(room);
    for (;;) {
        size_t got = from ? fread(from + size, 1, room - size, stdin) : 0;
        if (got == 0) break;
        size += got;
        if (size == room) from = realloc(from, room *= 2);
    }
    if (!from || ferror(stdin)) return 1;
    room = ZSTD_compressBound(size);
    char *to = malloc(room);
    if (!to) return 1;
    size = ZSTD_compress(to, room, from, size, atoi(arguments[1]));
    if (ZSTD_isError(size)) return 1;
    return fwrite(to, 1, size, stdout) == size && fflush(stdout) == 0 ? 0 : 1;
}
