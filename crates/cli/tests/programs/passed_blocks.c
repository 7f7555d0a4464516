/* Two threads take turns in writing two words of a heap block that is freed and allocated again
 * after each round, and two globals beside each other. After each free one of them reads a word of the
 * block, which is the mistake that a query finds: `passed_blocks ROUNDS`. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum { TURNS = 40 };

static pthread_barrier_t turn;
static long rounds;
static struct {
	volatile long first, second, rest[6];
} pair __attribute__((aligned(64)));
static volatile long *block;
static volatile long after;

static __attribute__((noinline)) long *one_block(void)
{
	return calloc(2, sizeof(long));
}

static __attribute__((noinline)) long *other_block(void)
{
	return calloc(2, sizeof(long));
}

static void *play(void *argument)
{
	int second = argument != NULL;
	for (long round = 0; round < rounds; round++) {
		if (!second)
			block = round % 2 ? other_block() : one_block();
		for (int i = 0; i < TURNS; i++) {
			pthread_barrier_wait(&turn);
			if (second == i % 2) {
				block[second] += i;
				if (second)
					pair.second++;
				else
					pair.first++;
			}
		}
		pthread_barrier_wait(&turn);
		if (!second) {
			volatile long *freed = block;
			free((void *)freed);
			after = freed[1];
		}
		pthread_barrier_wait(&turn);
	}
	return NULL;
}

int main(int count, char **arguments)
{
	if (count != 2)
		return 2;
	rounds = atol(arguments[1]);
	pthread_t threads[2];
	pthread_barrier_init(&turn, NULL, 2);
	for (long i = 0; i < 2; i++)
		pthread_create(&threads[i], NULL, play, (void *)i);
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	printf("%ld\n", pair.first + pair.second);
	return 0;
}
