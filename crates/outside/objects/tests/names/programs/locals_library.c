/* A library whose thread-local variables are private, exported and zeroed.
 * Compiled as C and as C++. */
#ifdef __cplusplus
#define LOCAL thread_local
#define SHOWN extern "C"
#else
#define LOCAL __thread
#define SHOWN
#endif

struct slot {
    long mine, theirs;
};

static LOCAL struct slot hidden = { 1, 2 };
SHOWN LOCAL struct slot shown[2];
LOCAL struct slot shown[2] = { { 3, 4 }, { 5, 6 } };
static LOCAL char zeroed[100];

SHOWN struct slot *hidden_slot(void)
{
    return &hidden;
}

SHOWN struct slot *shown_slot(void)
{
    return shown;
}

SHOWN char *zeroed_bytes(void)
{
    return zeroed;
}
