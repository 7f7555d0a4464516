/* Threads count in words that lie in a frame of the first thread: `on_stack CASE ROUNDS`. Says how often a
 * value was not what it must be. Cases:
 *   join     the first thread waits for the others in the function whose frame it is
 *   turns    the function returns and is called again, from other depths; others use its place meanwhile
 *   jump     the first thread leaves the function by longjmp when the others are done
 *   wakes    the first thread wakes again and again, and looks at the words and at some of its own */
#include <pthread.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { THREADS = 2, DEPTHS = 4 };

static long rounds;
static int wrong, done;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t end = PTHREAD_COND_INITIALIZER;
static jmp_buf out;

static void *count(void *argument)
{
	volatile long *mine = argument;
	volatile long kept[8];
	for (long i = 1; i <= rounds; i++) {
		*mine += 1;
		kept[i & 7] = i;
	}
	pthread_mutex_lock(&lock);
	done++;
	pthread_cond_signal(&end);
	pthread_mutex_unlock(&lock);
	return (void *)(kept[0] & 0);
}

/* The words, and beside them variables of the frame itself. */
struct frame {
	_Alignas(64) volatile long words[THREADS];
	volatile long beside[2];
};

static void begin(struct frame *f, pthread_t *threads)
{
	memset((void *)f, 0, sizeof *f);
	done = 0;
	for (int t = 0; t < THREADS; t++)
		pthread_create(&threads[t], NULL, count, (void *)&f->words[t]);
}

static void finish(struct frame *f, pthread_t *threads)
{
	for (int t = 0; t < THREADS; t++)
		pthread_join(threads[t], NULL);
	for (int t = 0; t < THREADS; t++)
		wrong += f->words[t] != rounds;
}

__attribute__((noinline)) static void join(void)
{
	struct frame f;
	pthread_t threads[THREADS];
	begin(&f, threads);
	f.beside[0] = 7;
	finish(&f, threads);
	wrong += f.beside[0] != 7;
}

/* Uses the stack where another frame was, with values of its own. */
__attribute__((noinline)) static void use_again(int depth)
{
	volatile unsigned char place[2048];
	for (size_t i = 0; i < sizeof place; i++)
		place[i] = (unsigned char)(depth + i);
	usleep(20000);
	for (size_t i = 0; i < sizeof place; i++)
		wrong += place[i] != (unsigned char)(depth + i);
}

__attribute__((noinline)) static void deeper(int depth)
{
	volatile char room[192];
	room[0] = (char)depth;
	if (depth > 0)
		deeper(depth - 1);
	else
		join();
	wrong += room[0] != (char)depth;
}

__attribute__((noinline)) static void leave(pthread_t *threads)
{
	struct frame f;
	begin(&f, threads);
	pthread_mutex_lock(&lock);
	while (done < THREADS)
		pthread_cond_wait(&end, &lock);
	pthread_mutex_unlock(&lock);
	for (int t = 0; t < THREADS; t++)
		wrong += f.words[t] != rounds;
	longjmp(out, 1);
}

__attribute__((noinline)) static void wake(void)
{
	struct frame f;
	pthread_t threads[THREADS];
	begin(&f, threads);
	long last[THREADS] = { 0 }, looks = 0;
	for (int over = 0; !over; looks++) {
		usleep(30000);
		f.beside[1] = looks;
		for (int t = 0; t < THREADS; t++) {
			long seen = f.words[t];
			wrong += seen < last[t];
			last[t] = seen;
		}
		pthread_mutex_lock(&lock);
		over = done == THREADS;
		pthread_mutex_unlock(&lock);
		wrong += f.beside[1] != looks;
	}
	finish(&f, threads);
}

int main(int argc, char **arguments)
{
	if (argc != 3)
		return 2;
	const char *which = arguments[1];
	rounds = atol(arguments[2]);
	pthread_t threads[THREADS] = { 0 };
	if (!strcmp(which, "join"))
		join();
	else if (!strcmp(which, "turns"))
		for (int turn = 0; turn < DEPTHS; turn++) {
			deeper(turn);
			use_again(turn);
		}
	else if (!strcmp(which, "wakes"))
		wake();
	else
		for (volatile int turn = 0; turn < 2; turn++) {
			if (setjmp(out) == 0)
				leave(threads);
			use_again(turn);
			for (int t = 0; t < THREADS; t++)
				pthread_join(threads[t], NULL);
		}
	printf("wrong %d\n", wrong);
	return wrong != 0;
}
