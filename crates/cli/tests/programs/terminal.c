/* A shell with one job, and a person at its terminal. Starts its arguments as a job in the
 * foreground of a new terminal and, once the job writes `ready`, presses Ctrl-Z, continues it by
 * `fg`, types a line, does all that again and presses Ctrl-C. After the word `unstoppable` the job
 * is one that ignores stops. Prints what happened, and what the job wrote to its standard
 * output. */
#define _GNU_SOURCE
#include <dirent.h>
#include <pty.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

static int reports, orders, terminal;
static volatile int job;
static char written[1 << 16];
static size_t bytes;

static void fail(const char *why) {
    printf("failed: %s\nwritten so far: %s\n", why, written);
    fflush(stdout);
    if (job > 0) kill(-job, SIGKILL);
    _exit(1);
}

static void late(int signal) { fail("it took too long"); }

/* The shell, which starts its one job and waits for it. */
static void shell(int report, int order, char **words) {
    struct termios settings;
    tcgetattr(0, &settings);
    settings.c_lflag &= ~ECHO;
    settings.c_oflag &= ~OPOST;
    tcsetattr(0, TCSANOW, &settings);
    int of_terminals[] = {SIGINT, SIGQUIT, SIGTSTP, SIGTTIN, SIGTTOU};
    for (int i = 0; i < 5; i++) signal(of_terminals[i], SIG_IGN);
    int child = fork(), status;
    if (child == 0) {
        setpgid(0, 0);
        tcsetpgrp(0, getpid());
        for (int i = 0; i < 5; i++) signal(of_terminals[i], SIG_DFL);
        freopen("/dev/null", "w", stderr);
        execvp(words[0], words);
        _exit(127);
    }
    setpgid(child, child);
    dprintf(report, "job %d\n", child);
    while (waitpid(child, &status, WUNTRACED) == child) {
        if (!WIFSTOPPED(status)) {
            dprintf(report, "ended %d\n", WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
            break;
        }
        char byte;
        tcsetpgrp(0, getpgrp());
        dprintf(report, "stopped %d\n", WSTOPSIG(status));
        if (read(order, &byte, 1) != 1) break;
        tcsetpgrp(0, child);
        kill(-child, SIGCONT);
    }
    _exit(0);
}

static int report(const char *kind) {
    char line[64] = "";
    for (size_t at = 0; at < sizeof line - 1 && read(reports, line + at, 1) == 1 && line[at] != '\n'; at++);
    if (strncmp(line, kind, strlen(kind))) fail(line);
    return atoi(line + strlen(kind));
}

/* Reads from the job until what it has written ends with `text`. */
static void until(const char *text) {
    size_t length = strlen(text), from = bytes;
    while (bytes < from + length || memcmp(written + bytes - length, text, length)) {
        if (bytes >= sizeof written - 1 || read(terminal, written + bytes, 1) != 1) fail(text);
        bytes++;
    }
}

/* Whether all processes of the job's group are stopped (1), none is (0), or only some (-1). Ended
 * ones do not count. A process whose tracer is stopped does not run either, and counts as
 * stopped. */
static int stopped(void) {
    char path[300], text[1024], letter;
    int group, all = 0, halted = 0;
    DIR *processes = opendir("/proc");
    for (struct dirent *entry; (entry = readdir(processes));) {
        snprintf(path, sizeof path, "/proc/%s/stat", entry->d_name);
        FILE *file = *entry->d_name >= '0' && *entry->d_name <= '9' ? fopen(path, "r") : 0;
        if (!file) continue;
        size_t length = fread(text, 1, sizeof text - 1, file);
        fclose(file);
        text[length] = 0;
        char *end = strrchr(text, ')');
        if (!end || sscanf(end + 1, " %c %*d %d", &letter, &group) != 2) continue;
        if (group != job || letter == 'Z' || letter == 'X') continue;
        all++;
        halted += letter == 'T' || letter == 't';
    }
    closedir(processes);
    if (all == 0) fail("the job has ended");
    return halted == all ? 1 : halted == 0 ? 0 : -1;
}

/* Waits until Sunder's thread for stops waits for the next one: no person presses Ctrl-Z again
 * before that. */
static void settled(void) {
    char path[300], text[1024];
    for (int waits = 1; waits; usleep(1000)) {
        waits = 0;
        snprintf(path, sizeof path, "/proc/%d/task", job);
        DIR *threads = opendir(path);
        for (struct dirent *entry; threads && (entry = readdir(threads));) {
            snprintf(path, sizeof path, "/proc/%d/task/%s/stat", job, entry->d_name);
            FILE *file = *entry->d_name >= '0' && *entry->d_name <= '9' ? fopen(path, "r") : 0;
            if (!file) continue;
            text[fread(text, 1, sizeof text - 1, file)] = 0;
            fclose(file);
            char *name = strstr(text, "(stops) ");
            waits |= name && name[8] != 'S';
        }
        if (threads) closedir(threads);
    }
}

static void press(const char *keys) {
    if (write(terminal, keys, strlen(keys)) < 0) fail("the terminal is gone");
}

int main(int count, char **words) {
    int from_shell[2], to_shell[2];
    int stops = strcmp(words[1], "unstoppable");
    if (!stops) words++;
    setvbuf(stdout, 0, _IOLBF, 0);
    if (pipe(from_shell) || pipe(to_shell)) return 1;
    int leader = forkpty(&terminal, 0, 0, 0);
    if (leader < 0) return 1;
    if (leader == 0) shell(from_shell[1], to_shell[0], words + 1);
    close(from_shell[1]);
    reports = from_shell[0];
    orders = to_shell[1];
    signal(SIGALRM, late);
    alarm(100);
    job = report("job ");
    until("ready\n");
    for (int round = 0; round < 2; round++) {
        settled();
        press("\032");
        if (!stops) {
            /* Time for Sunder, should it take this for a stop. */
            usleep(50000);
            press("line\n");
            until("got line\n");
            continue;
        }
        printf("stopped by %d\n", report("stopped "));
        while (stopped() != 1) usleep(1000);
        usleep(50000);
        printf("all are stopped: %d\n", stopped());
        if (write(orders, "f", 1) != 1) fail("the shell is gone");
        while (stopped() != 0) usleep(1000);
        printf("all go on\n");
        press("line\n");
        until("got line\n");
    }
    press("\003");
    int status = report("ended ");
    while (bytes < sizeof written - 1 && read(terminal, written + bytes, 1) == 1) bytes++;
    printf("ended with %d\n%s", status, written);
    return 0;
}
