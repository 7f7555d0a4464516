/* Creates a thread in nested functions; prints for each, innermost first, its
 * name, canonical frame address and frame pointer (0 where it has none). The
 * thread creates another one, in a function of its own. */
#include <pthread.h>
#include <stdio.h>
#define LINE(cfa, fp) printf("%s %p %p\n", __func__, (void *)(cfa), (void *)(fp))
static void *waits(void *a) { return a; }
static pthread_t second;
__attribute__((noinline)) static int creates_second(void) {
    int result = pthread_create(&second, NULL, waits, NULL);
    LINE(__builtin_dwarf_cfa(), 0);
    return result;
}
static void *starts(void *a) {
    int result = creates_second();
    pthread_join(second, NULL);
    return result ? NULL : a;
}
static pthread_t first;
__attribute__((noinline)) static int without_frame_pointer(void) {
    int result = pthread_create(&first, NULL, starts, &first);
    LINE(__builtin_dwarf_cfa(), 0);
    return result;
}
/* Its stack pointer depends on n, so that its caller's frame is found only by rbp. */
__attribute__((noinline)) static int with_frame_pointer(int n) {
    volatile char room[n];
    room[n - 1] = 1;
    int result = without_frame_pointer() + room[n - 1] - 1;
    LINE(__builtin_dwarf_cfa(), __builtin_frame_address(0));
    return result;
}
__attribute__((noinline)) static int realigned(void) {
    volatile char room[256] __attribute__((aligned(256)));
    room[3] = 0;
    int result = with_frame_pointer(300) + room[3];
    /* With __builtin_dwarf_cfa here, gcc would describe the CFA by an expression. */
    LINE((char *)__builtin_frame_address(0) + 16, __builtin_frame_address(0));
    return result;
}
int main(void) {
    void *result = NULL;
    if (realigned()) return 1;
    LINE(__builtin_dwarf_cfa(), 0);
    pthread_join(first, &result);
    printf("ready\n");
    fflush(stdout);
    while (getchar() != EOF) {}
    return result != &first;
}
