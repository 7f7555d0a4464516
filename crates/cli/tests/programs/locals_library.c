/* The library of locals.c, for C and for C++: one thread-local record, aligned so
 * that it lies on one line. */
#ifdef __cplusplus
#define LOCAL thread_local
extern "C"
#else
#define LOCAL __thread
#endif
struct tally *my_tally(void);

struct tally {
    long own, given;
    long unused[6];
};

static LOCAL struct tally tally __attribute__((aligned(64)));

struct tally *my_tally(void)
{
    return &tally;
}
