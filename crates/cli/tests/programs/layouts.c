/* Two threads take turns in writing two words of one object, so that the misses of
 * each are known: `layouts global|heap|array ROUNDS`. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct pair {
	long first;
	long second;
};

/* On lines of its own, so that only the two words share one. */
_Alignas(256) static pthread_barrier_t turn;
_Alignas(256) static long rounds;

_Alignas(256) static struct pair table;
_Alignas(256) static long counters[8];

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

static struct pair *make(void)
{
	struct pair *made = aligned_alloc(64, sizeof *made);
	return made;
}

int main(int count, char **arguments)
{
	if (count != 3)
		return 2;
	rounds = atol(arguments[2]);
	volatile long *words[2] = { &table.first, &table.second };
	struct pair *pair = make();
	if (!strcmp(arguments[1], "heap")) {
		words[0] = &pair->first;
		words[1] = &pair->second;
	} else if (!strcmp(arguments[1], "array")) {
		words[0] = &counters[2];
		words[1] = &counters[3];
	}
	struct side sides[2] = { { words[0], 0 }, { words[1], 1 } };
	pthread_t threads[2];
	pthread_barrier_init(&turn, NULL, 2);
	for (int i = 0; i < 2; i++)
		pthread_create(&threads[i], NULL, play, &sides[i]);
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	printf("%ld\n", *words[0] + *words[1]);
	free(pair);
	return 0;
}
