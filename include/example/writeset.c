/* A tool beside `sunder protect`: which bytes of each line each thread wrote, and how often two
 * threads wrote to a line in windows of time that overlap: other bytes (false sharing), or the same
 * ones (a race, since nothing that Sunder sees ordered the two).
 *
 *   gcc -O1 -I include include/example/writeset.c -o writeset
 *   sunder protect --commits run.commits -- ./slots
 *   ./writeset run.commits
 *
 * or, while the program runs, through a named pipe:
 *
 *   mkfifo run.pipe; ./writeset run.pipe & sunder protect --commits run.pipe -- ./slots; wait
 */
#include "sunder.h"
#include <inttypes.h>
#include <stdlib.h>

#define LINES 4096   /* lines that are kept; further ones are counted */
#define WRITERS 16   /* threads that are kept for each line */
#define NAMED 64     /* objects that are kept */

struct writer {
    uint32_t thread;
    uint64_t bytes, commits, time; /* all its bytes; its commits here; the last one's time */
    uint64_t last;                 /* the last one's bytes */
};
struct line {
    uint64_t address, turns, beside, same; /* overlapping windows with other bytes, and the same */
    uint32_t last;
    int writers;
    struct writer by[WRITERS];
};
static struct line lines[LINES];
static struct { uint64_t address, bytes; char name[64]; } objects[NAMED];
static int line_count, object_count;
static uint64_t left_out, lost, episodes;

static struct line *line_at(uint64_t address) {
    for (int i = 0; i < line_count; i++)
        if (lines[i].address == address) return &lines[i];
    if (line_count == LINES) return NULL;
    lines[line_count] = (struct line){.address = address};
    return &lines[line_count++];
}

static void change(const struct sunder_record *record) {
    struct line *line = line_at(record->address);
    struct writer *own = NULL;
    for (int i = 0; line && i < line->writers; i++)
        if (line->by[i].thread == record->thread) own = &line->by[i];
    if (!own && (!line || line->writers == WRITERS)) {
        left_out++;
        return;
    }
    if (!own) {
        own = &line->by[line->writers++];
        *own = (struct writer){.thread = record->thread};
    }
    line->turns += line->last && line->last != record->thread;
    line->last = record->thread;
    for (struct writer *other = line->by; other < line->by + line->writers; other++) {
        /* The other's last window ends within this one, so the two overlap. */
        if (other == own || other->time <= record->since) continue;
        if (other->last & record->bytes) line->same++;
        else line->beside++;
    }
    own->bytes |= record->bytes;
    own->last = record->bytes;
    own->time = record->time;
    own->commits++;
}

static void show(const struct line *line) {
    printf("line 0x%" PRIx64, line->address);
    for (int i = 0; i < object_count; i++)
        if (objects[i].address < line->address + 64 && line->address < objects[i].address + objects[i].bytes)
            printf("  %s%+" PRId64, *objects[i].name ? objects[i].name : "block", (int64_t)(line->address - objects[i].address));
    printf("  %" PRIu64 " interleaved; overlapping: %" PRIu64 " on other bytes, %" PRIu64 " on the same\n", line->turns, line->beside, line->same);
    for (int i = 0; i < line->writers; i++) {
        const struct writer *by = &line->by[i];
        printf("  %7u  ", by->thread);
        for (int byte = 0; byte < 64; byte++) putchar(by->bytes >> byte & 1 ? 'W' : '.');
        printf("  %" PRIu64 " commits\n", by->commits);
    }
}

int main(int count, char **arguments) {
    struct sunder_commits stream;
    struct sunder_record record;
    char text[64];
    int more, complete = 0;
    FILE *in = count > 1 ? fopen(arguments[1], "rb") : stdin;
    if (!in) return perror(arguments[1]), 2;
    if (!sunder_commits_open(&stream, in)) return fprintf(stderr, "not a stream of commits of version %d\n", SUNDER_COMMITS_VERSION), 2;
    while ((more = sunder_commits_next(&stream, &record, text, sizeof text)) > 0) {
        if (record.kind == SUNDER_CHANGE) change(&record);
        if (record.kind == SUNDER_BEGIN) episodes++;
        if (record.kind == SUNDER_LOST) lost += record.bytes;
        if (record.kind == SUNDER_CLOSED) printf("no thread was isolated any more: %s\n", text);
        if (record.kind == SUNDER_PROGRAM) line_count = object_count = 0;
        if (record.kind == SUNDER_EXIT) complete = 1;
        if (record.kind == SUNDER_OBJECT && object_count < NAMED) {
            objects[object_count].address = record.address;
            objects[object_count].bytes = record.bytes;
            strcpy(objects[object_count++].name, text);
        }
    }
    printf("process %u: %" PRIu64 " episodes, %d lines written\n", stream.process, episodes, line_count);
    for (int i = 0; i < line_count; i++) show(&lines[i]);
    if (left_out) printf("%" PRIu64 " changes left out: too many lines or threads\n", left_out);
    if (lost) printf("%" PRIu64 " records are missing: the reader was too slow\n", lost);
    if (more < 0 || !complete) printf("the stream is not complete\n");
    return more < 0 || !complete;
}
