// An object whose constructor allocates raw memory for one of its fields.
#include "recorder.h"

struct connection {
    char *buffer;
    long descriptor;
};

NOINLINE static struct connection *connect_to(size_t bytes)
{
    struct connection *made = malloc(sizeof *made);
    tell("made");
    made->buffer = malloc(bytes);
    tell("made->buffer");
    made->descriptor = -1;
    return made;
}

int main(int argc, char **argv)
{
    (void)argv;
    struct connection *one = connect_to(4096 * argc);
    KEEP(one);
    mappings();
    return 0;
}
