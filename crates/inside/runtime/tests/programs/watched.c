/* Frees the block whose line the test watches, and allocates at its address from another call
 * site. */
#include <stdio.h>
#include <stdlib.h>
#define SITE __attribute__((noinline, noclone))
SITE void *first_site(void) { void *p = malloc(48); __asm__ volatile("" ::: "memory"); return p; }
SITE void *second_site(void) { void *p = malloc(52); __asm__ volatile("" ::: "memory"); return p; }
int main(void) {
    static char in[64], out[64];
    setvbuf(stdin, in, _IOFBF, sizeof in);
    setvbuf(stdout, out, _IOLBF, sizeof out);
    void *p = first_site();
    printf("%p\n", p);
    getchar();
    free(p);
    void *q = second_site();
    if (p != q) return 1;
    free(q);
    for (int i = 0; i < 1000; i++) free(malloc(4000)); /* elsewhere */
    return 0;
}
