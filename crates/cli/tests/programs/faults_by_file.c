/* Two threads count on neighbouring words of a page whose faults the program handles itself, by
 * userfaultfd. Then it drops the page, which comes back as its handler fills it. Ends with 77 if it
 * does not, and with 76 where the kernel offers no such file. The argument says how often they count. */
#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { PAGE = 4096, FILLED = 1000 };

static volatile long *words;
static int faults;
static long rounds;

static void *handle(void *page) {
    for (long n = 0; n < PAGE / 8; n++) ((long *)page)[n] = FILLED + n;
    for (;;) {
        struct uffd_msg message;
        struct pollfd wait = {.fd = faults, .events = POLLIN};
        poll(&wait, 1, -1);
        if (read(faults, &message, sizeof message) != sizeof message) continue;
        struct uffdio_copy copy = {.dst = message.arg.pagefault.address & -PAGE, .src = (unsigned long)page,
                                   .len = PAGE};
        ioctl(faults, UFFDIO_COPY, &copy);
    }
    return NULL;
}

static void *count(void *argument) {
    volatile long *own = &words[(long)argument];
    for (long i = 0; i < rounds; i++) __atomic_fetch_add(own, 1, __ATOMIC_RELAXED);
    return NULL;
}

int main(int argc, char **argv) {
    pthread_t handler, threads[2];
    struct uffdio_api api = {.api = UFFD_API};
    rounds = argc > 1 ? atol(argv[1]) : 1000000;
    faults = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);
    if (faults < 0 || ioctl(faults, UFFDIO_API, &api)) return 76;
    words = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct uffdio_register all = {.range = {(unsigned long)words, PAGE}, .mode = UFFDIO_REGISTER_MODE_MISSING};
    if (ioctl(faults, UFFDIO_REGISTER, &all)) return 76;
    void *page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    pthread_create(&handler, NULL, handle, page);
    for (long n = 0; n < 2; n++) pthread_create(&threads[n], NULL, count, (void *)n);
    for (int n = 0; n < 2; n++) pthread_join(threads[n], NULL);
    printf("%ld %ld\n", words[0] - rounds, words[1] - rounds);
    madvise((void *)words, PAGE, MADV_DONTNEED);
    printf("%ld %ld\n", words[0], words[1]);
    return words[0] == FILLED && words[1] == FILLED + 1 ? 0 : 77;
}
