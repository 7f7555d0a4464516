/* Two objects, allocated one after the other at two call sites and passed to
 * different threads, lie on one line.
 * After: SHERIFF Table 1, "false sharing (adjacent objects)". */
#include "workload.h"

struct account {
    uint64_t balance;
    uint32_t deposits, withdrawals;
};

static struct account *accounts[MAX_THREADS];

static OPAQUE void book(struct account *account, uint64_t *journal, uint64_t amount) {
    journal[amount % JOURNAL] = amount;
    if (amount % 8 == 0) {
        account->balance -= amount;
        account->withdrawals++;
    } else {
        account->balance += amount; /* touch: balance */
        account->deposits++;
    }
}

static void work(struct part *part) {
    struct account *mine = accounts[part->id];
    uint64_t *journal = new_journal();
    for (long i = part->begin; i < part->end; i++)
        book(mine, journal, ((uint64_t)i * 0x9e3779b97f4a7c15u) >> 56);
    free(journal);
}

/* Keeps the compiler from merging two functions that are alike. */
#define DISTINCT __attribute__((noipa))

/* The stores after the allocation keep the compiler from jumping to malloc, which
 * would leave no stack frame of these functions; a memset would be merged with malloc
 * to calloc, which glibc serves from other memory. */
static DISTINCT struct account *new_customer(void) {
    struct account *new;
    if (IS_FIXED)
        new = aligned_alloc(LINE, LINE);
    else
        new = malloc(sizeof *new); /* alloc: customer */
    new->balance = 0;
    new->deposits = new->withdrawals = 0;
    return new;
}

static DISTINCT struct account *new_supplier(void) {
    struct account *new;
    if (IS_FIXED)
        new = aligned_alloc(LINE, LINE);
    else
        new = malloc(sizeof *new); /* alloc: supplier */
    new->balance = 0;
    new->deposits = new->withdrawals = 0;
    return new;
}

int main(int argc, char **argv) {
    struct arguments a = read_arguments(argc, argv);
    lead_heap_to(sizeof(struct account), 0);
    for (long i = 0; i < a.threads; i++) {
        accounts[i] = i % 2 ? new_supplier() : new_customer();
    }
    if (a.threads > 1) check_layout(on_one_line(accounts[0], accounts[1]) != IS_FIXED, "accounts");
    run_threads(a, work);
    uint64_t sum = 0;
    for (long i = 0; i < a.threads; i++) {
        sum += accounts[i]->balance + 3ul * accounts[i]->deposits + 5ul * accounts[i]->withdrawals;
        free(accounts[i]);
    }
    print_checksum(sum);
    return 0;
}
