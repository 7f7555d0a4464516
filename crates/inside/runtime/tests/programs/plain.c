/* One block. */
#include <stdio.h>
#include <stdlib.h>
int main(void) {
    void *p = malloc(40);
    printf("%p\nready\n", p);
    fflush(stdout);
    while (getchar() != EOF) {}
    free(p);
    return 0;
}
