/* What broke the first system that made processes of threads (lost atomic additions, hangs of spins
 * and of trylock loops, private file mappings, lists, output, read, memalign), and what puts strain
 * on this one: many threads, locks, allocations, random ends. Meanwhile threads compute on one page,
 * in code on pages of its own, so that they are isolated. The output of each case must be the same
 * however it is run, and the status is 3.
 * Usage: stress CASE [SCALE [WEIGHT]]. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

/* Plain and atomic data on one page. */
static struct {
    volatile unsigned long n[256];
    atomic_long sum;
    atomic_int flag, turn;
    volatile int told;
    char text[1024];
} shared_page __attribute__((aligned(4096)));
extern char shared[4096] __attribute__((alias("shared_page")));
static char beside[4096] __attribute__((aligned(4096), used));
static long scale = 1;
/* How much is computed between two steps of a case. */
static long weight = 15;

#define ALONE __attribute__((noinline, aligned(4096)))
ALONE static void spin(int own, long loops) {
    for (long i = 0; i < loops * weight; i++) shared_page.n[own]++;
}
/* No instruction here orders memory. */
ALONE static void wait_for(volatile int *word, int value) {
    while (*word != value) shared_page.n[250]++;
}
ALONE static void after(void) {}

static void run(int count, void *(*work)(void *)) {
    pthread_t all[64];
    for (long i = 0; i < count; i++)
        if (pthread_create(&all[i], NULL, work, (void *)i)) abort();
    for (int i = 0; i < count; i++) pthread_join(all[i], NULL);
}
static int counted(int own, unsigned long wanted) {
    wanted *= (unsigned long)weight;
    if (shared_page.n[own] == wanted) return 1;
    printf("%d: %lu instead of %lu\n", own, shared_page.n[own], wanted);
    return 0;
}

static void *add(void *p) {
    for (int r = 0; r < 10; r++) {
        spin((int)(long)p, 300000);
        for (int i = 0; i < 500000; i++) atomic_fetch_add(&shared_page.sum, 1);
    }
    return p;
}
static void *flags(void *p) {
    int own = (int)(long)p;
    for (int r = 0; r < 20; r++) {
        spin(own, 100000);
        while (atomic_load(&shared_page.turn) != r * 2 + own) {}
        atomic_store(&shared_page.turn, r * 2 + own + 1);
    }
    return p;
}
static void *plain(void *p) {
    int own = (int)(long)p;
    for (int r = 0; r < 10; r++) {
        spin(own, 100000);
        wait_for(&shared_page.told, r * 2 + own);
        shared_page.told = r * 2 + own + 1;
    }
    return p;
}
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_spinlock_t spinlock;
static long guarded;
static void *try_lock(void *p) {
    for (int r = 0; r < 200; r++) {
        spin((int)(long)p, 20000);
        while (pthread_mutex_trylock(&lock)) {}
        long now = guarded;
        for (volatile int i = 0; i < 50; i++) {}
        guarded = now + 1;
        pthread_mutex_unlock(&lock);
    }
    return p;
}
static char *file_text;
static size_t file_size;
static struct node { struct node *next; int value; } *lists[8];
static long words[4];
static void *count_words(void *p) {
    int own = (int)(long)p;
    size_t from = file_size / 4 * own, to = own == 3 ? file_size : file_size / 4 * (own + 1);
    spin(own, 2000000);
    for (size_t i = from; i < to; i++)
        if (file_text[i] == ' ') { words[own]++; file_text[i] = 0; }
    spin(own, 2000000);
    return p;
}
static void *link_lists(void *p) {
    int own = (int)(long)p;
    for (int i = 0; i < 2000; i++) {
        if (i % 100 == 0) spin(own, 100000);
        struct node *node = malloc(sizeof *node);
        node->value = own * 2000 + i;
        pthread_mutex_lock(&lock);
        node->next = lists[i % 8];
        lists[i % 8] = node;
        pthread_mutex_unlock(&lock);
    }
    return p;
}
static void *say(void *p) {
    for (int r = 0; r < 100; r++) {
        spin((int)(long)p, 30000);
        printf("a line that must stay whole\n");
    }
    return p;
}
static int pipes[2];
static void *read_in(void *p) {
    int own = (int)(long)p;
    for (int r = 0; r < 50; r++) {
        spin(own, 100000);
        char *to = shared_page.text + own * 64, out[64];
        memset(out, 'a' + (r + own) % 26, 64);
        pthread_mutex_lock(&lock);
        if (write(pipes[1], out, 64) != 64 || read(pipes[0], to, 64) != 64 || memcmp(to, out, 64))
            printf("read is wrong\n");
        pthread_mutex_unlock(&lock);
        spin(own, 1000);
        if (to[63] != 'a' + (r + own) % 26) printf("read was lost\n");
    }
    return p;
}
static void *align(void *p) {
    for (int r = 0; r < 300; r++) {
        if (r % 10 == 0) spin((int)(long)p, 50000);
        void *block;
        size_t alignment = 16ul << r % 12;
        if (posix_memalign(&block, alignment, 100 + (size_t)r) || (size_t)block % alignment) printf("memalign\n");
        memset(block, r, 100);
        free(block);
    }
    return p;
}
static pthread_barrier_t gate;
static pthread_cond_t news = PTHREAD_COND_INITIALIZER;
static void *lock_hard(void *p) {
    int own = (int)(long)p;
    for (int r = 0; r < 50 * scale; r++) {
        spin(own, 3000);
        pthread_mutex_lock(&lock);
        guarded++;
        pthread_cond_signal(&news);
        pthread_mutex_unlock(&lock);
        pthread_spin_lock(&spinlock);
        guarded += 0;
        pthread_spin_unlock(&spinlock);
        if (r % 10 == 0) pthread_barrier_wait(&gate);
    }
    return p;
}
static void *allocate_hard(void *p) {
    int own = (int)(long)p;
    char *kept[64] = {0};
    unsigned seed = (unsigned)own;
    for (int r = 0; r < 400 * scale; r++) {
        int i = rand_r(&seed) % 64;
        if (kept[i] && (kept[i][0] != (char)i || kept[i][50] != (char)own)) printf("a block was lost\n");
        size_t size = 64 + (size_t)rand_r(&seed) % (r % 20 ? 5000 : 300000);
        kept[i] = r % 3 ? realloc(kept[i], size) : (free(kept[i]), calloc(1, size));
        if (r % 3 == 0 && kept[i][size - 1]) printf("not zero\n");
        kept[i][0] = (char)i;
        kept[i][50] = (char)own;
        if (r % 20 == 0) spin(own, 20000);
    }
    for (int i = 0; i < 64; i++) free(kept[i]);
    return p;
}
/* Limits how many threads compute at a time. */
static sem_t room;
static void *one_of_many(void *p) {
    int own = (int)(long)p;
    pthread_barrier_wait(&gate);
    sem_wait(&room);
    spin(own % 250, own < 250 ? 100000 : 0);
    sem_post(&room);
    atomic_fetch_add(&shared_page.sum, own);
    pthread_barrier_wait(&gate);
    return p;
}
static atomic_int cleaned;
static void clean(void *p) { atomic_fetch_add(&cleaned, (int)(long)p); }
static void on_signal(int signal) { (void)signal; atomic_fetch_add(&shared_page.flag, 1); }
static void *ends(void *p) {
    int own = (int)(long)p;
    pthread_cleanup_push(clean, (void *)1);
    spin(own, 200000);
    if (own % 4 == 0) pthread_exit(p);
    if (own % 4 == 1) for (;;) { pthread_testcancel(); spin(200 + own, 1000); }
    if (own % 4 == 2) for (;;) { sleep(1000); }
    pthread_cleanup_pop(1);
    return p;
}
static volatile int enough;
static void *forever(void *p) {
    unsigned long n = 0;
    for (; !enough; n++) spin((int)(long)p, 1000);
    return (void *)n;
}

int main(int count, char **argument) {
    const char *what = argument[1];
    if (count > 2) scale = atol(argument[2]);
    if (count > 3) weight = atol(argument[3]);
    int right = 1;
    pthread_spin_init(&spinlock, 0);
    pthread_barrier_init(&gate, NULL, 4);
    if (!strcmp(what, "atomics")) { run(2, add); right = shared_page.sum == 10000000 && counted(0, 3000000) && counted(1, 3000000); }
    else if (!strcmp(what, "flags")) { run(2, flags); right = shared_page.turn == 40 && counted(0, 2000000); }
    else if (!strcmp(what, "plain")) { run(2, plain); right = shared_page.told == 20 && counted(1, 1000000); }
    else if (!strcmp(what, "trylock")) { run(3, try_lock); right = guarded == 600; }
    else if (!strcmp(what, "words")) {
        char name[] = "/tmp/stress-words-XXXXXX";
        int file = mkstemp(name);
        for (int i = 0; i < 40000; i++) dprintf(file, "word%d ", i);
        file_size = (size_t)lseek(file, 0, SEEK_END);
        file_text = mmap(NULL, file_size, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
        run(4, count_words);
        long left = 0;
        for (size_t i = 0; i < file_size; i++) left += file_text[i] == ' ';
        char first[7] = {0};
        right = words[0] + words[1] + words[2] + words[3] == 40000 && left == 0 && pread(file, first, 6, 0) == 6 && !strcmp(first, "word0 ");
        unlink(name);
    } else if (!strcmp(what, "lists")) {
        run(4, link_lists);
        long nodes = 0, sum = 0;
        for (int i = 0; i < 8; i++) for (struct node *n = lists[i]; n; n = n->next) { nodes++; sum += n->value; }
        right = nodes == 8000 && sum == 8000l * 7999 / 2;
    } else if (!strcmp(what, "output")) run(4, say);
    else if (!strcmp(what, "read")) { right = !pipe(pipes); run(2, read_in); }
    else if (!strcmp(what, "memalign")) run(2, align);
    else if (!strcmp(what, "locks")) { run(4, lock_hard); right = guarded == 200 * scale && counted(3, 150000ul * (unsigned long)scale); }
    else if (!strcmp(what, "allocations")) { run(4, allocate_hard); }
    else if (!strcmp(what, "many")) {
        static pthread_t all[500];
        pthread_attr_t small;
        pthread_attr_init(&small);
        pthread_attr_setstacksize(&small, 64 << 10);
        sem_init(&room, 0, 3);
        pthread_barrier_destroy(&gate);
        pthread_barrier_init(&gate, NULL, 501);
        for (long i = 0; i < 500; i++) right &= !pthread_create(&all[i], &small, one_of_many, (void *)i);
        pthread_barrier_wait(&gate);
        pthread_barrier_wait(&gate);
        for (int i = 0; i < 500; i++) pthread_join(all[i], NULL);
        right &= shared_page.sum == 500 * 499 / 2;
        for (int i = 0; i < 250; i++) right &= counted(i, 100000);
    } else if (!strcmp(what, "ends")) {
        struct sigaction action = {.sa_handler = on_signal};
        sigaction(SIGUSR1, &action, NULL);
        for (int round = 0; round < 3 * scale; round++) {
            pthread_t all[16];
            for (long i = 0; i < 16; i++) pthread_create(&all[i], NULL, ends, (void *)i);
            for (int i = 0; i < 16; i++) if (i % 4 == 1 || i % 4 == 2) pthread_kill(all[i], SIGUSR1);
            usleep(3000);
            for (int i = 0; i < 16; i++) if (i % 4 == 1 || i % 4 == 2) pthread_cancel(all[i]);
            for (int i = 0; i < 16; i++) {
                void *got;
                pthread_join(all[i], &got);
                right &= got == (i % 4 == 1 || i % 4 == 2 ? PTHREAD_CANCELED : (void *)(long)i);
            }
        }
        right &= cleaned == 48 * scale;
        for (int i = 0; i < 16; i++) right &= counted(i, 600000ul * (unsigned long)scale) || i % 4 == 2 || i % 4 == 1;
    } else if (!strcmp(what, "heap")) {
        /* Gigabytes of address space, of which few pages are ever touched. */
        size_t size = (size_t)scale << 30;
        char *big = malloc(size);
        for (size_t i = 0; i < size; i += 4 << 20) big[i] = (char)(i >> 22);
        run(2, add);
        for (size_t i = 0; i < size; i += 4 << 20) right &= big[i] == (char)(i >> 22) && big[i + 4096] == 0;
        right &= shared_page.sum == 10000000;
    } else if (!strcmp(what, "forever") || !strcmp(what, "while")) {
        /* Until a signal ends it, or for so many seconds, without those in which it is stopped. */
        pthread_t one, two;
        pthread_create(&one, NULL, forever, (void *)0);
        pthread_create(&two, NULL, forever, (void *)1);
        for (long i = 0; *what == 'f' || i < 100 * scale; i++) usleep(10000);
        enough = 1;
        void *n[2];
        pthread_join(one, &n[0]);
        pthread_join(two, &n[1]);
        right = counted(0, (unsigned long)n[0] * 1000) && counted(1, (unsigned long)n[1] * 1000);
    } else return 2;
    after();
    puts(right ? "right" : "wrong");
    return right ? 3 : 1;
}
