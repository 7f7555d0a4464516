//! `sunder trace` on programs that fork, execute others, load libraries, crash or are killed: each
//! does what it does alone, and the trace is readable and says how it ended.

use crate::support::sunder;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command as Plain, Output};
use std::sync::OnceLock;
use sunder_trace::meta::{Reason, State};
use sunder_trace::{Filter, Trace, What};

fn folder() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("trace-ends");
        std::fs::create_dir_all(&folder).expect("cargo's own folder");
        folder
    })
}

/// Compiles with `sunder cc`.
fn build(name: &str, source: &str, arguments: &[&str]) -> PathBuf {
    let file = folder().join(name).with_extension("c");
    let program = folder().join(name);
    std::fs::write(&file, source).expect("a file of ours");
    let mut command = sunder();
    command.args(["cc", "-O1", "-g", "-o"]).arg(&program);
    command.arg(&file).args(arguments).assert().success();
    program
}

/// One program with a way to end for each argument. Both the program and what it starts print to
/// the same stream.
const ENDS: &str = r#"
#define _GNU_SOURCE
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
extern char **environ;
static volatile long cells[1000];
static void work(long rounds) { for (long i = 0; i < rounds; i++) cells[i % 1000]++; }
static int say(const char *text) { return write(1, text, strlen(text)) < 0; }
static void *leave(void *unused) { exit(11); return unused; }
static void on_fault(int signal) { say("handled\n"); _exit(signal); }
static int status_of(pid_t child) { int s = 0; waitpid(child, &s, 0); return WEXITSTATUS(s); }
static char *echo[] = {"sh", "-c", "echo $0 $X; exit 4", "a", 0};
static char *with_x[] = {"X=set", "PATH=/usr/bin:/bin", 0};
int main(int argc, char **argv) {
    const char *how = argv[1];
    int is(const char *name) { return strcmp(how, name) == 0; }
    work(100000);
    say("begun\n");
    if (is("return")) return 5;
    if (is("_exit")) _exit(6);
    if (is("_Exit")) _Exit(7);
    if (is("quick_exit")) quick_exit(8);
    if (is("exit_group")) syscall(SYS_exit_group, 9);
    if (is("thread")) { pthread_t t; pthread_create(&t, 0, leave, 0); pause(); }
    if (is("abort")) abort();
    if (is("assert")) assert(argc > 5);
    if (is("fault")) *(volatile int *)8 = 1;
    if (is("handler")) { signal(SIGSEGV, on_fault); *(volatile int *)8 = 1; }
    if (is("kill")) kill(getpid(), SIGKILL);
    if (is("term")) raise(SIGTERM);
    if (is("fork")) {
        pid_t child = fork();
        if (child == 0) { work(200000); say("child\n"); _exit(9); }
        return status_of(child);
    }
    if (is("vfork")) {
        pid_t child = vfork();
        if (child == 0) { execl("/bin/sh", "sh", "-c", "exit 3", (char *)0); _exit(99); }
        int status = status_of(child);
        work(1000);
        return status;
    }
    if (is("fork-exec")) {
        pid_t child = fork();
        if (child == 0) { execvp("sh", echo); _exit(99); }
        int status = status_of(child);
        work(1000);
        return status;
    }
    if (is("posix_spawn") || is("posix_spawnp")) {
        pid_t child;
        int error = is("posix_spawn") ? posix_spawn(&child, "/bin/sh", 0, 0, echo, with_x)
                                      : posix_spawnp(&child, "sh", 0, 0, echo, environ);
        if (error) return 98;
        int status = status_of(child);
        work(1000);
        return status;
    }
    if (is("system")) { int s = system("echo from system; exit 7"); work(1000); return WEXITSTATUS(s); }
    if (is("popen")) {
        char line[100] = "";
        FILE *pipe = popen("echo through a pipe", "r");
        if (!pipe || !fgets(line, sizeof line, pipe)) return 97;
        say(line);
        return WEXITSTATUS(pclose(pipe)) + 2;
    }
    if (is("execl")) execl("/bin/sh", "sh", "-c", "echo $0 $1 $2 $3 $4 $5; exit 4", "a", "b", "c", "d", "e", "f", (char *)0);
    if (is("execlp")) execlp("sh", "sh", "-c", "echo $0; exit 4", "a", (char *)0);
    if (is("execle")) execle("/bin/sh", "sh", "-c", "echo $0 $1 $2 $X; exit 4", "a", "b", "c", (char *)0, with_x);
    if (is("execv")) execv("/bin/sh", echo);
    if (is("execvp")) execvp("sh", echo);
    if (is("execve")) execve("/bin/sh", echo, with_x);
    if (is("execvpe")) execvpe("sh", echo, with_x);
    if (is("fexecve")) fexecve(open("/bin/sh", O_RDONLY | O_CLOEXEC), echo, with_x);
    if (is("execveat")) execveat(open("/bin", O_RDONLY | O_CLOEXEC), "sh", echo, with_x, 0);
    if (is("no exec")) {
        execl("/no/such/program", "x", (char *)0);
        execlp("no-such-program", "x", (char *)0);
        execvp("", echo);
        execve("/etc/passwd", echo, with_x);
        fexecve(-1, echo, with_x);
        if (errno != EINVAL) return 96;
        work(100000);
        return 12;
    }
    if (is("bad exec")) {
        execv(argv[2], echo);
        if (errno != ENOEXEC) return 94;
        work(100000);
        return 13;
    }
    return 95;
}
"#;

fn ends() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| build("ends", ENDS, &[]))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The outputs of the program alone and recorded.
fn both(how: &str) -> (Output, Output, PathBuf) {
    let trace = folder().join(format!("{how}.trace"));
    let alone = Plain::new(ends()).arg(how).output().expect("it runs");
    let mut command = sunder();
    command.args(["trace", "--via", "instrumented", "-o"]);
    let recorded = command.arg(&trace).arg("--").arg(ends()).arg(how).output();
    (alone, recorded.expect("it runs"), trace)
}

/// Increments before the end, each a read and a write.
const WORK: u64 = 100_000;
/// How many of its last events a thread may not have written yet.
const BUFFER: u64 = 32_768;

#[test]
fn programs_that_end_by_themselves_leave_whole_traces_and_do_what_they_do_alone() {
    for (how, status, reason, increments) in [
        ("return", 5, Reason::Exit, WORK),
        ("_exit", 6, Reason::Exit, WORK),
        ("_Exit", 7, Reason::Exit, WORK),
        ("quick_exit", 8, Reason::Exit, WORK),
        ("thread", 11, Reason::Exit, WORK),
        ("handler", 11, Reason::Exit, WORK),
        ("abort", 128 + 6, Reason::Abort, WORK),
        ("assert", 128 + 6, Reason::Abort, WORK),
        ("fork", 9, Reason::Exit, WORK),
        ("vfork", 3, Reason::Exit, WORK + 1000),
        ("fork-exec", 4, Reason::Exit, WORK + 1000),
        ("posix_spawn", 4, Reason::Exit, WORK + 1000),
        ("posix_spawnp", 4, Reason::Exit, WORK + 1000),
        ("system", 7, Reason::Exit, WORK + 1000),
        ("popen", 2, Reason::Exit, WORK),
        ("execl", 4, Reason::Exec, WORK),
        ("execlp", 4, Reason::Exec, WORK),
        ("execle", 4, Reason::Exec, WORK),
        ("execv", 4, Reason::Exec, WORK),
        ("execvp", 4, Reason::Exec, WORK),
        ("execve", 4, Reason::Exec, WORK),
        ("execvpe", 4, Reason::Exec, WORK),
        ("fexecve", 4, Reason::Exec, WORK),
        ("execveat", 4, Reason::Exec, WORK),
        ("no exec", 12, Reason::Exit, 2 * WORK),
    ] {
        let (alone, recorded, path) = both(how);
        let ended = alone.status.code();
        let ended = ended.or(alone.status.signal().map(|signal| 128 + signal));
        assert_eq!(ended, Some(status), "{how}");
        assert_eq!(recorded.status.code(), Some(status), "{how}");
        assert_eq!(text(&recorded.stdout), text(&alone.stdout), "{how}");
        assert_eq!(text(&recorded.stderr), text(&alone.stderr), "{how}");
        let trace = Trace::open(&path).expect("it was recorded");
        assert!(
            trace.summary().is_complete(),
            "{how}: {:?}",
            trace.summary()
        );
        let end = trace.end().expect("it is whole");
        assert_eq!((end.reason, end.lost), (reason, 0), "{how}");
        let plain = end.accesses;
        // The rest of the program does a few dozen.
        assert!(plain >= 2 * increments, "{how}: {plain}");
        assert!(plain < 2 * increments + 500, "{how}: {plain}");
    }
}

#[test]
fn programs_that_are_ended_leave_what_was_written_and_the_reason() {
    for (how, signal, said) in [
        ("fault", 11, "signal 11 (Segmentation fault)"),
        ("kill", 9, "signal 9 (Killed)"),
        ("term", 15, "signal 15 (Terminated)"),
        ("exit_group", 0, "around the C library's exit"),
    ] {
        let (alone, recorded, path) = both(how);
        assert_eq!(alone.status.signal().unwrap_or(0), signal, "{how}");
        let status = if signal == 0 { 9 } else { 128 + signal };
        assert_eq!(recorded.status.code(), Some(status), "{how}");
        assert_eq!(text(&recorded.stdout), text(&alone.stdout), "{how}");
        let err = text(&recorded.stderr);
        assert!(err.contains(said) && err.contains("is partial"), "{err}");
        assert_eq!(err.lines().count(), 1, "{err}");
        let trace = Trace::open(&path).expect("the good part");
        let mut events = trace.events(Filter::default());
        let count = events.by_ref().count() as u64;
        assert!(count > 2 * WORK - BUFFER, "{how}: {count}");
        assert_eq!((events.damaged_blocks(), trace.summary().gaps), (0, 0));
        let progress = trace.progress().expect("it is sound");
        assert_eq!(
            (progress.state, progress.errno),
            (State::Died, signal as u32)
        );
        // `trace info` says the same later.
        let info = sunder().args(["trace", "info"]).arg(&path).output();
        let info = info.expect("it runs");
        assert!(info.status.success());
        assert!(text(&info.stderr).contains(said), "{}", text(&info.stderr));
    }
}

const LIBRARY: &str = r"
#include <stdlib.h>
volatile long count;
void *bump(void *at) {
    for (int i = 0; i < 20000; i++) ++*(volatile long *)at;
    return 0;
}
void *make(void) {
    for (int i = 0; i < COUNT; i++) count++;
    return malloc(SIZE);
}
";

/// Opens both libraries, closes the first, lets two threads run in the second on memory that it
/// allocated, then ends as its argument says.
const OPENS: &str = r#"
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
static void *make(void *library) {
    void *(*make)(void) = (void *(*)(void))dlsym(library, "make");
    return make ? make() : 0;
}
int main(int argc, char **argv) {
    void *one = dlopen("./libone.so", RTLD_NOW);
    if (!one || !make(one) || dlclose(one)) { puts(dlerror()); return 1; }
    void *two = dlopen(argv[1], RTLD_NOW);
    long *cells = two ? make(two) : 0;
    void *(*bump)(void *) = two ? (void *(*)(void *))dlsym(two, "bump") : 0;
    if (!cells || !bump) { puts(dlerror()); return 2; }
    if (argc > 2) raise(SIGKILL);
    cells = (long *)(((uintptr_t)cells + 63) / 64 * 64);
    pthread_t thread[2];
    for (int i = 0; i < 2; i++) pthread_create(&thread[i], 0, bump, cells + i);
    for (int i = 0; i < 2; i++) pthread_join(thread[i], 0);
    puts("done");
    return 3;
}
"#;

#[test]
fn code_of_opened_libraries_lies_in_listed_modules_also_if_the_program_dies() {
    // With so many events, a block of them is written before the end.
    for (name, size) in [("one", "1111"), ("two", "2222")] {
        let source = LIBRARY.replace("SIZE", size).replace("COUNT", "100000");
        build(&format!("lib{name}.so"), &source, &["-shared", "-fPIC"]);
    }
    let program = build("opens", OPENS, &["-pthread"]);
    let two = folder().join("libtwo.so");
    for (name, dies, status) in [("ends", false, 3), ("dies", true, 128 + 9)] {
        let path = folder().join(format!("opens-{name}.trace"));
        let mut command = sunder();
        command.current_dir(folder()).args(["trace", "-o"]);
        command.arg(&path).arg("--").arg(&program).arg(&two);
        if dies {
            command.arg("die");
        }
        let output = command.assert().code(status).get_output().clone();
        assert_eq!(text(&output.stdout), if dies { "" } else { "done\n" });
        let trace = Trace::open(&path).expect("it was recorded");
        let mut found = Vec::new();
        for event in trace.events(Filter::default()) {
            let What::Allocate { size, stack, .. } = event.what else {
                continue;
            };
            if let Some(library) = [1111, 2222].iter().position(|&s| s == size) {
                let frames = trace.stack(stack).expect("it was recorded");
                found.push((library, event.time, frames[0].0));
            }
        }
        // A library's last events are lost if the program dies.
        assert_eq!(found.len(), if dies { 1 } else { 2 }, "{found:?}");
        for (library, time, frame) in found {
            let module = trace.module_at(time, frame).expect("it is listed");
            let expected = folder().join(["libone.so", "libtwo.so"][library]);
            assert_eq!(Path::new(&module.path), expected);
        }
        // The accesses are found too, whether or not the allocation is.
        let counting = trace
            .events(Filter::default())
            .filter_map(|e| match e.what {
                What::Access { access, .. } => trace.module_at(e.time, access.instruction.0),
                _ => None,
            });
        let in_two = counting.filter(|m| Path::new(&m.path) == two).count() as u64;
        if !dies {
            names_the_library(&path, &two);
        }
        let least = if dies { 2 * WORK - BUFFER } else { 2 * WORK };
        assert!(in_two >= least, "{in_two}");
    }
}

/// Checks that a replay finds the cells that the threads share, and names the library's code.
fn names_the_library(trace: &Path, library: &Path) {
    let result = trace.with_extension("json");
    let mut replay = sunder();
    replay.args(["simulate", "--quiet", "-o"]);
    replay.arg(&result).arg(trace).assert().success();
    let findings = sunder_findings::Findings::open(&result).expect("it was written");
    let first = findings.findings.first().expect("two threads share a line");
    assert_eq!(first.sharing, sunder_findings::Sharing::False);
    let maker = first.object.allocation.first().expect("it was recorded");
    assert_eq!(maker.function, "make");
    assert_eq!(maker.module.as_deref().map(Path::new), Some(library));
}

#[test]
fn a_trace_that_ended_for_an_exec_that_failed_says_so() {
    let path = folder().join("bad-exec.trace");
    // A file that is executable but that the kernel does not know as a program.
    let garbage = folder().join("garbage");
    std::fs::write(&garbage, [0x7f; 100]).expect("our own folder");
    let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&garbage, executable).expect("our own file");
    let mut command = sunder();
    command.args(["trace", "-o"]).arg(&path).arg("--");
    command.arg(ends()).arg("bad exec").arg(&garbage);
    let output = command.assert().code(13).get_output().clone();
    assert_eq!(text(&output.stdout), "begun\n");
    let err = text(&output.stderr);
    assert!(
        err.contains("is partial: it ends where the program was to execute another"),
        "{err}"
    );
    assert!(err.contains("Exec format error"), "{err}");
    let trace = Trace::open(&path).expect("the good part");
    assert!(!trace.summary().is_complete());
    let count = trace.events(Filter::default()).count() as u64;
    assert!((2 * WORK..3 * WORK).contains(&count), "{count}");
}
