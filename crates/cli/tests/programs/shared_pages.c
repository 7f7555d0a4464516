/* Threads take turns in writing on the pages of everything that a page can hold: variables of main's
 * stack, globals of which two share a word, an array, and heap blocks of several sizes, call sites and
 * threads. Each of two waves of threads is created anew, on the stacks of the wave before:
 * `shared_pages ROUNDS`. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { THREADS = 3, WAVES = 2, ENTRIES = 3000 };

static pthread_barrier_t turn;
static long rounds;
static volatile int low, high;
static volatile long table[ENTRIES];
static volatile long *in_main[THREADS];
static char *volatile blocks[THREADS][2];

static __attribute__((noinline)) char *small(int self)
{
	return calloc(1, 24 + 8 * self);
}

static __attribute__((noinline)) char *large(void)
{
	return malloc(6000);
}

static void step(int self, long round)
{
	/* Copies of 32 bytes reach over the ends of pages. */
	static const char bytes[32] = "as wide as a register of 256 bit";
	volatile long own[4] = {round};
	*in_main[self] += own[0];
	if (self == 0)
		low++;
	else if (self == 1)
		high++;
	for (int i = self; i < ENTRIES; i += 97 * THREADS)
		table[i] += i;
	blocks[self][0][8] += 1;
	memcpy(blocks[(self + 1) % THREADS][1] + 128 * self + round, bytes, sizeof bytes);
}

static void *play(void *argument)
{
	int self = (int)(long)argument;
	blocks[self][0] = small(self);
	blocks[self][1] = large();
	memset(blocks[self][1], self, 6000);
	for (long round = 0; round < rounds; round++)
		for (int of = 0; of < THREADS; of++) {
			pthread_barrier_wait(&turn);
			if (of == self)
				step(self, round);
		}
	pthread_barrier_wait(&turn);
	free(blocks[self][0]);
	return NULL;
}

int main(int count, char **arguments)
{
	volatile long words[THREADS] = {0};
	long sum = 0;
	if (count != 2)
		return 2;
	rounds = atol(arguments[1]);
	pthread_barrier_init(&turn, NULL, THREADS);
	for (int wave = 0; wave < WAVES; wave++) {
		pthread_t threads[THREADS];
		for (long i = 0; i < THREADS; i++) {
			in_main[i] = &words[i];
			pthread_create(&threads[i], NULL, play, (void *)i);
		}
		for (int i = 0; i < THREADS; i++)
			pthread_join(threads[i], NULL);
	}
	for (int i = 0; i < THREADS; i++)
		sum += words[i];
	printf("%ld %d %d %ld\n", sum, low, high, table[ENTRIES - 1]);
	return 0;
}
