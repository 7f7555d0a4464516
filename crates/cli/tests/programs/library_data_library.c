/* A library with data of its own, which its functions and its callers write: see library_data.c. */
struct totals {
	volatile long count[2];
	volatile long sum[2];
	char name[16];
};

/* Initialised data: they come from the file. */
_Alignas(64) static struct totals totals = { .name = "as in the file" };
/* Data that begin with zeroes: they lie behind the file's. */
_Alignas(64) static volatile long zeroes[8];

/* The loop is in the library. */
void count_here(int which, long rounds)
{
	volatile long kept[8];
	for (long i = 0; i < rounds; i++) {
		totals.count[which] += 1;
		totals.sum[which] += i & 3;
		kept[i & 7] = i;
	}
	zeroes[which] += rounds;
}

volatile long *words(void)
{
	return zeroes;
}

long total(int which)
{
	return totals.count[which];
}

const char *name(void)
{
	return totals.name;
}
