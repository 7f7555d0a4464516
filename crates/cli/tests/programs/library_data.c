/* Two threads count in words of a library's data that lie on one line: `library_data CASE ROUNDS LIBRARY`.
 * Says how often a value was not what it must be. Cases:
 *   here     the loops are in the library
 *   there    the loops are in the program, which has the address of the library's words
 *   again    as `here`, but the library is closed and loaded anew, three times */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void (*count_here)(int, long);
static volatile long *(*words)(void);
static long rounds;
static int there;

static void *count(void *argument)
{
	int which = (int)(long)argument;
	if (!there) {
		count_here(which, rounds);
		return NULL;
	}
	volatile long *mine = words() + which;
	volatile long kept[8];
	for (long i = 0; i < rounds; i++) {
		*mine += 1;
		kept[i & 7] = i;
	}
	return (void *)(kept[0] & 0);
}

int main(int count_of, char **arguments)
{
	if (count_of != 4)
		return 2;
	there = !strcmp(arguments[1], "there");
	int turns = strcmp(arguments[1], "again") ? 1 : 3, wrong = 0;
	rounds = atol(arguments[2]);
	for (int turn = 0; turn < turns; turn++) {
		void *library = dlopen(arguments[3], RTLD_NOW | RTLD_LOCAL);
		if (library == NULL)
			return 3;
		count_here = (void (*)(int, long))dlsym(library, "count_here");
		words = (volatile long *(*)(void))dlsym(library, "words");
		long (*total)(int) = (long (*)(int))dlsym(library, "total");
		const char *(*name)(void) = (const char *(*)(void))dlsym(library, "name");
		/* A library that was loaded anew has its data as they are in its file. */
		wrong += total(0) != 0 || total(1) != 0 || words()[0] != 0 || words()[1] != 0;
		pthread_t threads[2];
		for (long t = 0; t < 2; t++)
			pthread_create(&threads[t], NULL, count, (void *)t);
		for (int t = 0; t < 2; t++)
			pthread_join(threads[t], NULL);
		for (int t = 0; t < 2; t++)
			wrong += words()[t] != rounds || total(t) != (there ? 0 : rounds);
		wrong += strcmp(name(), "as in the file") != 0;
		dlclose(library);
	}
	printf("wrong %d\n", wrong);
	return wrong != 0;
}
