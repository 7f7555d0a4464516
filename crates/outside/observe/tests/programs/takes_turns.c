/* Two threads wake each other by pipes, again and again, until the program is killed: thousands of
 * switches between threads a second. */
#include <pthread.h>
#include <unistd.h>

static int to_first[2], to_second[2];

static void *second(void *unused) {
    char c;
    while (read(to_second[0], &c, 1) == 1)
        if (write(to_first[1], &c, 1) != 1)
            break;
    return unused;
}

int main(void) {
    pthread_t thread;
    char c = 0;
    volatile unsigned long work = 0;
    if (pipe(to_first) || pipe(to_second) || pthread_create(&thread, NULL, second, NULL))
        return 1;
    while (write(to_second[1], &c, 1) == 1 && read(to_first[0], &c, 1) == 1)
        for (int i = 0; i < 10000; i++)
            work++;
    return 0;
}
