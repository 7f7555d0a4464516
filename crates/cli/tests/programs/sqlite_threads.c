/* Threads that read an SQLite database: `shared` through one cache, `separate`
   each in a database of its own, where only the library's own state is common.
   Usage: sqlite_threads shared|separate THREADS ROWS. Prints a checksum. */
#include <pthread.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_THREADS 16
#define ROUNDS 8

static int shared;
static int rows;

static void fail(sqlite3 *db, const char *what) {
    fprintf(stderr, "%s: %s\n", what, sqlite3_errmsg(db));
    exit(1);
}

static sqlite3 *open_database(const char *name) {
    int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_URI | SQLITE_OPEN_FULLMUTEX;
    sqlite3 *db = NULL;
    if (sqlite3_open_v2(name, &db, flags, NULL) != SQLITE_OK) fail(db, name);
    return db;
}

static void execute(sqlite3 *db, const char *sql) {
    if (sqlite3_exec(db, sql, NULL, NULL, NULL) != SQLITE_OK) fail(db, sql);
}

static void fill(sqlite3 *db) {
    sqlite3_stmt *insert = NULL;
    char text[32];
    execute(db, "create table t(a integer primary key, b integer, c text)");
    execute(db, "begin");
    if (sqlite3_prepare_v2(db, "insert into t values(?,?,?)", -1, &insert, NULL) != SQLITE_OK)
        fail(db, "insert");
    for (int i = 0; i < rows; i++) {
        sqlite3_bind_int(insert, 1, i);
        sqlite3_bind_int(insert, 2, (int)((unsigned)i * 2654435761u % 1000));
        snprintf(text, sizeof text, "row %d", i);
        sqlite3_bind_text(insert, 3, text, -1, SQLITE_TRANSIENT);
        if (sqlite3_step(insert) != SQLITE_DONE) fail(db, "insert");
        sqlite3_reset(insert);
    }
    sqlite3_finalize(insert);
    execute(db, "commit");
}

static const char common[] = "file:common?mode=memory&cache=shared";

static void *read_all(void *argument) {
    long number = (long)argument;
    long long sum = 0;
    char own[64];
    sqlite3 *db;
    if (shared) {
        db = open_database(common);
    } else {
        snprintf(own, sizeof own, "file:own%ld?mode=memory", number);
        db = open_database(own);
        fill(db);
    }
    for (int round = 0; round < ROUNDS; round++) {
        sqlite3_stmt *all = NULL;
        if (sqlite3_prepare_v2(db, "select b, length(c) from t", -1, &all, NULL) != SQLITE_OK)
            fail(db, "select");
        while (sqlite3_step(all) == SQLITE_ROW)
            sum += sqlite3_column_int(all, 0) * (long long)sqlite3_column_int(all, 1);
        sqlite3_finalize(all);
    }
    sqlite3_close(db);
    return (void *)sum;
}

int main(int argc, char **argv) {
    if (argc != 4) return 2;
    shared = strcmp(argv[1], "shared") == 0;
    int threads = atoi(argv[2]);
    rows = atoi(argv[3]);
    if (threads < 1 || threads > MAX_THREADS) return 2;
    sqlite3 *keep = NULL;
    if (shared) {
        keep = open_database(common);
        fill(keep);
    }
    pthread_t running[MAX_THREADS];
    long long total = 0;
    for (long i = 0; i < threads; i++) pthread_create(&running[i], NULL, read_all, (void *)i);
    for (int i = 0; i < threads; i++) {
        void *sum;
        pthread_join(running[i], &sum);
        total += (long long)sum;
    }
    if (keep) sqlite3_close(keep);
    printf("%s, %d threads: %lld\n", argv[1], threads, total);
    return 0;
}
