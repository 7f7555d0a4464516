/* Two threads count in slots of one cache line, in memory that was mapped with MAP_SHARED and has no
 * file: `in_common CASE ROUNDS`. Says how often the memory was not what it must be. Cases:
 *   alone    no other process ever has it
 *   private  the same with MAP_PRIVATE
 *   before   a child that was forked before the threads began looks on to the end
 *   during   children are forked while the threads count, look on for a while, and end
 *   twice    the memory is mapped a second time in the same process */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { CHILDREN = 64, BYTES = 4096 };

struct board {
	volatile long slot[4];
	/* On lines of their own: what processes tell each other. */
	_Alignas(256) volatile int over;
	_Alignas(256) volatile long said[CHILDREN];
};

static struct board *board;
static long rounds;

static void *count(void *argument)
{
	volatile long *mine = argument;
	volatile long kept[8];
	for (long i = 1; i <= rounds; i++) {
		*mine += 1;
		kept[i & 7] = i;
	}
	return (void *)kept[rounds & 7];
}

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

/* In another process, for so long (0: to the end): counts never go back, and those of threads that have
 * not ended go on. On a busy machine that takes a while. */
static int look_on(double seconds)
{
	enum { LONGEST = 30 };
	long first[2] = { board->slot[0], board->slot[1] }, last[2] = { first[0], first[1] };
	double begin = now();
	for (int goes_on = 0; seconds == 0 || !goes_on || now() < begin + seconds; usleep(200)) {
		for (int i = 0; i < 2; i++) {
			long seen = board->slot[i];
			if (seen < last[i])
				return 1;
			last[i] = seen;
		}
		if (board->over)
			return board->slot[0] != rounds || board->slot[1] != rounds;
		goes_on = last[0] > first[0] || last[1] > first[1] || (last[0] == rounds && last[1] == rounds);
		if (!goes_on && now() > begin + LONGEST)
			return 1;
	}
	return 0;
}

static int wait_for(pid_t child)
{
	int status;
	return child < 0 || waitpid(child, &status, 0) != child || status != 0;
}

int main(int count_of, char **arguments)
{
	if (count_of != 3)
		return 2;
	const char *which = arguments[1];
	rounds = atol(arguments[2]);
	int rights = PROT_READ | PROT_WRITE;
	int kind = strcmp(which, "private") ? MAP_SHARED : MAP_PRIVATE;
	board = mmap(NULL, BYTES, rights, kind | MAP_ANONYMOUS, -1, 0);
	if (board == MAP_FAILED)
		return 3;
	pid_t child = 0;
	int wrong = 0, forked = 0;
	if (!strcmp(which, "before") && (child = fork()) == 0)
		_exit(look_on(0));
	struct board *second = board;
	if (!strcmp(which, "twice"))
		second = mremap(board, 0, BYTES, MREMAP_MAYMOVE);
	pthread_t threads[2];
	for (long i = 0; i < 2; i++)
		pthread_create(&threads[i], NULL, count, (void *)&board->slot[i]);
	if (!strcmp(which, "twice"))
		for (long last = 0; last < rounds; usleep(200)) {
			wrong += second->slot[0] < last;
			last = second->slot[0];
		}
	if (!strcmp(which, "during"))
		for (; forked < CHILDREN && board->slot[0] < rounds; forked++) {
			usleep(300000);
			pid_t one = fork();
			if (one == 0) {
				int bad = look_on(0.1);
				board->said[forked] = forked + 1;
				_exit(bad);
			}
			wrong += wait_for(one);
			wrong += board->said[forked] != forked + 1;
		}
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	board->over = 1;
	if (child != 0)
		wrong += wait_for(child);
	wrong += second->slot[0] != rounds || second->slot[1] != rounds;
	printf("wrong %d\n", wrong);
	return wrong != 0;
}
