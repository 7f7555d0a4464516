/* Two threads count in neighbouring slots, in a loop of plain writes, and then in a total, by
 * a locked instruction of the same function: all of this program's code is on a page or two
 * with such instructions.
 * `until` counts until the process's memory shows that a thread was isolated; `often` executes a
 * locked instruction after every 200 plain writes, `each` after every one. In `hand`, both count in
 * the same slot under a lock that is taken by an exchange and released by a plain store, in a loop
 * in which nothing orders memory: an isolated thread must not release the lock before others can
 * see its counts. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
struct slot { volatile unsigned long n, sum; };
struct slot slots[256] __attribute__((aligned(4096)));
static volatile unsigned long total __attribute__((aligned(4096)));
static char pad[4096] __attribute__((aligned(4096)));
static volatile int enough;
static unsigned long length = 20000000, most = -1ul;
static unsigned long rounds[2];

static void *count(void *p) {
    long id = (long)p;
    unsigned long round = 0;
    while (!enough && round != most) {
        for (unsigned long i = 0; i < length; i++) {
            slots[id].n++;
            slots[id].sum += i;
        }
        __asm__ volatile("lock addq $1, %0" : "+m"(total));
        round++;
    }
    rounds[id] = round;
    return 0;
}

static void *each(void *p) {
    long id = (long)p;
    for (unsigned long i = 0; i < most; i++) {
        slots[id].n++;
        slots[id].sum += i;
        __asm__ volatile("lock addq $1, %0" : "+m"(total));
    }
    rounds[id] = most;
    return 0;
}

static volatile int held __attribute__((aligned(4096)));

static void *hand(void *p) {
    for (unsigned long i = 0; i < most; i++) {
        int old = 1;
        do {
            while (held);
            __asm__ volatile("xchgl %0, %1" : "+r"(old), "+m"(held));
        } while (old);
        for (unsigned long k = 0; k < length; k++) {
            slots[0].n++;
            slots[0].sum += k;
        }
        __asm__ volatile("" ::: "memory");
        held = 0;
    }
    return 0;
}

static void watch(void) {
    char line[512];
    int found = 0;
    for (int i = 0; i < 6000 && !found; i++) {
        FILE *f = fopen("/proc/self/maps", "r");
        while (fgets(line, sizeof line, f)) found |= strstr(line, "sunder-memory") != 0;
        fclose(f);
        usleep(5000);
    }
    usleep(1000000);
    enough = 1;
}

int main(int c, char **v) {
    int once = c > 1 && !strcmp(v[1], "each");
    if (once) { length = 1; most = 3000000; }
    if (c > 1 && !strcmp(v[1], "often")) { length = 200; most = 100000; }
    int hands = c > 1 && !strcmp(v[1], "hand");
    if (hands) { length = 400000; most = 300; }
    void *(*what)(void *) = once ? each : hands ? hand : count;
    pthread_t t, u;
    pthread_create(&t, 0, what, (void *)0);
    pthread_create(&u, 0, what, (void *)1);
    if (most == -1ul) watch();
    pthread_join(t, 0);
    pthread_join(u, 0);
    if (hands) {
        int ok = slots[0].n == 2 * most * length && slots[0].sum == 2 * most * (length * (length - 1) / 2);
        printf("%s %d\n", ok ? "right" : "wrong", pad[0]);
        return ok ? 5 : 1;
    }
    int ok = total == rounds[0] + rounds[1];
    for (int id = 0; id < 2; id++) {
        unsigned long sum = once ? most * (most - 1) / 2 : rounds[id] * (length * (length - 1) / 2);
        ok &= slots[id].n == rounds[id] * length && slots[id].sum == sum;
    }
    printf("%s %d\n", ok ? "right" : "wrong", pad[0]);
    return ok ? 5 : 1;
}
