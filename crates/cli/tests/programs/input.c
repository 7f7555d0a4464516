/* Two threads read a file through a private mapping that they could write, and add up in fields of
 * structs that lie side by side: `input CASE FILE ROUNDS`. The bytes 1 and 2 of FILE's first two pages
 * are 7. Says how
 * often a value was not what it must be. Cases:
 *   read     nobody writes to the mapping
 *   written  the threads themselves write to it at the end of each round, each to a page of its own
 *   late     the first thread writes to it once, after a while; the others wait for what it writes */
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

struct sums {
	const unsigned char *from;
	uint64_t sx, sxx, sy, sxy;
	long number;
#if FIXED
	char padding[128];
#endif
};

enum { PAGE = 4096, THREADS = 2, NEW = 251 };

static struct sums sums[THREADS];
static unsigned char *input;
static size_t length;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static size_t part;
static long rounds, wrong;
static int writes;

static void add_up(struct sums *s)
{
	for (size_t i = 0; i + 1 < part; i += 2) {
		s->sx += s->from[i];
		s->sxx += s->from[i] * s->from[i];
		s->sy += s->from[i + 1];
		s->sxy += s->from[i] * s->from[i + 1];
	}
}

static void *work(void *argument)
{
	struct sums *s = argument;
	for (long round = 0; round < rounds; round++) {
		add_up(s);
		if (!writes)
			continue;
		unsigned char *own = input + s->number * PAGE, *others = input + (1 - s->number) * PAGE;
		pthread_mutex_lock(&lock);
		own[1]++;
		/* What was written before the lock was given back is seen by all that take it. */
		own[2] = own[1];
		wrong += others[1] != others[2];
		pthread_mutex_unlock(&lock);
	}
	return NULL;
}

/* Computes until it sees what the first thread writes. */
static void *wait_for(void *argument)
{
	struct sums *s = argument;
	const volatile unsigned char *flag = input + length / 2;
	while (*flag != NEW)
		for (size_t i = 0; i < PAGE; i++) {
			s->sx += s->from[i];
			s->sxx += s->from[i] * s->from[i];
		}
	return NULL;
}

int main(int count, char **arguments)
{
	if (count != 4)
		return 2;
	const char *which = arguments[1];
	int file = open(arguments[2], O_RDONLY);
	struct stat told;
	if (file < 0 || fstat(file, &told) != 0 || told.st_size < 16 * PAGE)
		return 3;
	length = (size_t)told.st_size;
	input = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
	if (input == MAP_FAILED)
		return 4;
	int waits = !strcmp(which, "late");
	writes = !strcmp(which, "written");
	part = (length - 4 * PAGE) / THREADS;
	rounds = atol(arguments[3]);
	pthread_t threads[THREADS];
	for (long t = 0; t < THREADS; t++) {
		sums[t] = (struct sums){ .from = input + 2 * PAGE + t * part, .number = t };
		pthread_create(&threads[t], NULL, waits ? wait_for : work, &sums[t]);
	}
	if (waits) {
		usleep(1500000);
		input[length / 2] = NEW;
	}
	uint64_t sum = 0;
	for (int t = 0; t < THREADS; t++) {
		pthread_join(threads[t], NULL);
		sum = sum * 31 + sums[t].sx + sums[t].sxx + sums[t].sy + sums[t].sxy;
	}
	if (writes)
		for (int t = 0; t < THREADS; t++)
			wrong += (unsigned char)(input[t * PAGE + 1] - rounds) != 7;
	printf("wrong %ld", wrong);
	if (!waits)
		printf(" sum %lx", (unsigned long)sum);
	printf("\n");
	munmap(input, length);
	close(file);
	return wrong != 0;
}
