//! `sunder cc`, `sunder c++` and `sunder trace` on real programs: the recorded accesses are
//! compared with those that the programs make.

use crate::support::sunder;
use std::path::{Path, PathBuf};
use std::process::Command as Plain;
use sunder_access::Kind;
use sunder_trace::meta::Reason;
use sunder_trace::{Event, Filter, Trace, What};

/// Compiles `source` with `sunder cc` or, if its name says so, `sunder c++`.
fn build(folder: &Path, name: &str, source: &str, compiler: Option<&str>) -> PathBuf {
    let file = folder.join(name);
    let program = file.with_extension("");
    std::fs::write(&file, source).expect("a file of ours");
    let cpp = name.ends_with(".cpp");
    let mut command = sunder();
    command.arg(if cpp { "c++" } else { "cc" });
    if let Some(compiler) = compiler {
        command.env(if cpp { "SUNDER_CXX" } else { "SUNDER_CC" }, compiler);
    }
    command.args(["-O0", "-g", "-o"]).arg(&program).arg(&file);
    command.assert().success();
    program
}

/// Records a run of `program` that must exit with `status`; the program's output and our notices.
fn record(program: &Path, status: i32) -> (PathBuf, String, String) {
    let trace = program.with_extension("trace");
    let output = sunder()
        .args(["trace", "-o"])
        .arg(&trace)
        .arg("--")
        .arg(program)
        .assert()
        .code(status)
        .get_output()
        .clone();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (trace, text(&output.stdout), text(&output.stderr))
}

fn whole(path: &Path) -> (Trace, Vec<Event>) {
    let trace = Trace::open(path).expect("a trace was recorded");
    assert!(trace.summary().is_complete(), "{:?}", trace.summary());
    let mut reader = trace.events(Filter::default());
    let events: Vec<Event> = reader.by_ref().collect();
    assert_eq!(reader.damaged_blocks(), 0);
    (trace, events)
}

/// Kind and value address of the accesses in `bytes` bytes from `start`.
fn accesses(events: &[Event], start: u64, bytes: u64) -> Vec<(u32, Kind)> {
    let inside = |e: &Event| match e.what {
        What::Access { access, .. } if access.address.0.wrapping_sub(start) < bytes => {
            Some((e.thread, access.kind))
        }
        _ => None,
    };
    events.iter().filter_map(inside).collect()
}

fn address(line: &str) -> u64 {
    u64::from_str_radix(line.trim().trim_start_matches("0x"), 16).expect("an address")
}

const LOOP: &str = r"
#include <pthread.h>
#include <stdio.h>
static volatile long cells[100];
static void *work(void *own) {
    long first = (long)own;
    for (int i = 0; i < 20000; i++) cells[first + i % 50]++;
    return 0;
}
int main(void) {
    pthread_t threads[2];
    printf(`%p\n`, (void *)cells);
    for (long i = 0; i < 2; i++) pthread_create(&threads[i], 0, work, (void *)(i * 50));
    for (int i = 0; i < 2; i++) pthread_join(threads[i], 0);
    return 7;
}
";

fn exact_counts(compiler: Option<&str>) {
    let folder = tempfile::tempdir().expect("a folder");
    let program = build(folder.path(), "loop.c", &LOOP.replace('`', "\""), compiler);
    let (path, out, err) = record(&program, 7);
    assert_eq!(err, "");
    let (trace, events) = whole(&path);
    let seen = accesses(&events, address(&out), 800);
    let count = |kind| seen.iter().filter(|(_, k)| *k == kind).count();
    assert_eq!((count(Kind::Read), count(Kind::Write)), (40_000, 40_000));
    assert_eq!(trace.threads().len(), 3);
    let end = trace.end().expect("it is whole");
    assert_eq!(end.accesses + end.others, trace.summary().events);
    assert_eq!((end.lost, end.reason), (0, Reason::Exit));
    let main = trace
        .modules()
        .first()
        .map(|(_, list)| list[0].path.clone());
    assert_eq!(main.as_deref(), program.to_str());
}

#[test]
fn every_access_of_a_loop_is_recorded_once() {
    exact_counts(None);
}

#[test]
fn clang_s_hooks_record_the_same() {
    if Plain::new("clang").arg("--version").output().is_err() {
        println!("SKIP: clang is not installed");
        return;
    }
    exact_counts(Some("clang"));
}

const TURNS: &str = r"
#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <thread>
static long by_atomic, by_mutex, by_join;
static std::atomic<int> turn{0};
static std::mutex mutex;
static std::condition_variable changed;
static bool full;
int main() {
    std::printf(`%p\n%p\n%p\n`, (void *)&by_atomic, (void *)&by_mutex, (void *)&by_join);
    long sum = 0;
    std::thread producer([] {
        for (int i = 0; i < 3000; i++) {
            while (turn.load(std::memory_order_acquire) != 2 * i) std::this_thread::yield();
            by_atomic = i;
            turn.store(2 * i + 1, std::memory_order_release);
        }
        for (int i = 0; i < 3000; i++) {
            std::unique_lock<std::mutex> held(mutex);
            changed.wait(held, [] { return !full; });
            by_mutex = i;
            full = true;
            changed.notify_all();
        }
        by_join = 1;
    });
    std::thread consumer([&] {
        for (int i = 0; i < 3000; i++) {
            while (turn.load(std::memory_order_acquire) != 2 * i + 1) std::this_thread::yield();
            sum += by_atomic;
            turn.store(2 * i + 2, std::memory_order_release);
        }
        for (int i = 0; i < 3000; i++) {
            std::unique_lock<std::mutex> held(mutex);
            changed.wait(held, [] { return full; });
            sum += by_mutex;
            full = false;
            changed.notify_all();
        }
    });
    producer.join();
    consumer.join();
    return sum + by_join == 2 * 3000L * 2999 / 2 + 1 ? 0 : 1;
}
";

#[test]
fn what_atomics_locks_and_joins_order_is_in_that_order() {
    let folder = tempfile::tempdir().expect("a folder");
    let program = build(folder.path(), "turns.cpp", &TURNS.replace('`', "\""), None);
    let (path, out, _) = record(&program, 0);
    let (_, events) = whole(&path);
    let mut lines = out.lines().map(address);
    for turns in [3000, 3000, 1] {
        let seen = accesses(&events, lines.next().expect("three lines"), 8);
        assert_eq!(seen.len(), 2 * turns);
        for pair in seen.chunks(2) {
            assert_eq!((pair[0].1, pair[1].1), (Kind::Write, Kind::Read));
            assert_ne!(pair[0].0, pair[1].0);
        }
    }
}

const HEAP: &str = r"
#include <stdlib.h>
static void *inner(size_t n) { return malloc(n); }
static void *one(void) { return inner(777); }
static void *two(void) { return inner(778); }
int main(void) {
    char *a = one(), *b = two(), *c = one();
    a = realloc(a, 100000);
    free(a); free(b); free(c);
    return 0;
}
";

#[test]
fn allocations_have_sizes_and_call_stacks_and_are_freed_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let program = build(folder.path(), "heap.c", HEAP, None);
    let (path, _, _) = record(&program, 0);
    let (trace, events) = whole(&path);
    let of_size = |wanted| {
        let found = events.iter().filter_map(move |e| match e.what {
            What::Allocate {
                address,
                size,
                stack,
                ..
            } if size == wanted => Some((address, stack)),
            _ => None,
        });
        found.collect::<Vec<_>>()
    };
    let (one, two) = (of_size(777), of_size(778));
    assert_eq!((one.len(), two.len(), of_size(100_000).len()), (2, 1, 1));
    let frames = |stack| trace.stack(stack).expect("it was recorded").to_vec();
    let (first, other, again) = (frames(one[0].1), frames(two[0].1), frames(one[1].1));
    // malloc's caller is the same; inner's callers differ; one's callers differ.
    assert_eq!(first[0], other[0]);
    assert_ne!(first[1], other[1]);
    assert_eq!(first[..2], again[..2]);
    assert_ne!(first[2], again[2]);
    let freed = |wanted| {
        let frees = events
            .iter()
            .filter(move |e| matches!(e.what, What::Free { address } if address == wanted));
        frees.count()
    };
    assert_eq!((freed(two[0].0), freed(one[1].0)), (1, 1));
}

#[test]
fn alignments_that_are_asked_for_are_recorded() {
    let folder = tempfile::tempdir().expect("a folder");
    let source = include_str!("../programs/aligned.cpp");
    let program = build(folder.path(), "aligned.cpp", source, None);
    let (path, _, _) = record(&program, 0);
    crate::support::asked::check(&whole(&path).1);
}

const FORKS: &str = r"
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>
static volatile long cell;
int main(void) {
    printf(`%p\n`, (void *)&cell); fflush(stdout);
    cell = 1;
    pid_t child = fork();
    if (child == 0) { for (int i = 0; i < 100000; i++) cell = i; _exit(5); }
    int status; waitpid(child, &status, 0);
    cell = 2;
    return WEXITSTATUS(status);
}
";

#[test]
fn a_forked_child_is_not_recorded_and_harms_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let program = build(folder.path(), "forks.c", &FORKS.replace('`', "\""), None);
    let (path, out, _) = record(&program, 5);
    let (_, events) = whole(&path);
    assert_eq!(accesses(&events, address(&out), 8).len(), 2);
}

const EXECS: &str = r"
#include <unistd.h>
int main(void) { char *a[] = {`echo`, `hello`, 0}; execvp(a[0], a); return 1; }
";

#[test]
fn a_program_that_executes_another_leaves_a_whole_trace_of_itself() {
    let folder = tempfile::tempdir().expect("a folder");
    let source = EXECS.replace('`', "\"");
    let program = build(folder.path(), "execs.c", &source, None);
    let (path, out, _) = record(&program, 0);
    assert_eq!(out, "hello\n");
    let (trace, _) = whole(&path);
    assert_eq!(trace.end().map(|e| e.reason), Some(Reason::Exec));
}

#[test]
fn a_program_that_was_not_built_for_it_is_named_in_a_sentence() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("trace");
    let run = sunder()
        .args(["trace", "--via", "instrumented", "-o"])
        .arg(&path)
        .args(["--", "true"])
        .assert()
        .code(125);
    let err = String::from_utf8_lossy(&run.get_output().stderr).into_owned();
    assert!(err.contains("true was not built for it"), "{err}");
    assert!(!path.exists());
}

#[test]
fn dump_prints_what_passes_its_filters() {
    let folder = tempfile::tempdir().expect("a folder");
    let program = build(folder.path(), "dump.c", &LOOP.replace('`', "\""), None);
    let (path, out, _) = record(&program, 7);
    let start = address(&out);
    let range = format!("{start:#x}-{:#x}", start + 8);
    let dump = sunder()
        .args(["trace", "dump", "--kind", "write", "--range", &range])
        .arg(&path)
        .assert()
        .success();
    let text = String::from_utf8_lossy(&dump.get_output().stdout).into_owned();
    assert_eq!(text.lines().count(), 400);
    assert!(
        text.lines()
            .all(|l| l.contains(&format!(" write {start:#x} 8 at 0x")))
    );
    let few = sunder()
        .args(["trace", "dump", "--limit", "3"])
        .arg(&path)
        .assert()
        .success();
    assert_eq!(
        few.get_output()
            .stdout
            .iter()
            .filter(|b| **b == b'\n')
            .count(),
        3
    );
}
