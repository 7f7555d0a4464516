/* Two threads take turns in writing two words of one heap block, so that the misses
 * of each are known: `turns ROUNDS DISTANCE`, with the words DISTANCE bytes
 * apart. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static pthread_barrier_t turn;
static long rounds;

struct side {
	volatile long *word;
	int second;
};

static void *play(void *argument)
{
	struct side *side = argument;
	volatile long *word = side->word;
	int second = side->second;
	for (long i = 0; i < rounds; i++) {
		if (!second)
			*word = i;
		pthread_barrier_wait(&turn);
		if (second)
			*word = i;
		pthread_barrier_wait(&turn);
	}
	return NULL;
}

int main(int count, char **arguments)
{
	if (count != 3)
		return 2;
	rounds = atol(arguments[1]);
	char *board = aligned_alloc(256, 256);
	struct side sides[2] = {
		{ (volatile long *)board, 0 },
		{ (volatile long *)(board + atol(arguments[2])), 1 },
	};
	pthread_t threads[2];
	pthread_barrier_init(&turn, NULL, 2);
	for (int i = 0; i < 2; i++)
		pthread_create(&threads[i], NULL, play, &sides[i]);
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	printf("%ld\n", *sides[0].word + *sides[1].word);
	return 0;
}
