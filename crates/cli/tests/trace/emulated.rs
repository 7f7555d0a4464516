//! `sunder trace --via emulated` on programs that were not built for it: the recorded accesses are
//! compared with those that the programs make.

use crate::support::sunder;
use std::path::{Path, PathBuf};
use std::process::Command as Plain;
use sunder_access::Kind;
use sunder_trace::meta::{Reason, Via};
use sunder_trace::{Event, Filter, Trace, What};

/// Whether the emulator is installed; prints a notice if not.
fn emulator() -> bool {
    let there = Plain::new("qemu-x86_64").arg("--version").output().is_ok();
    if !there {
        println!("SKIP: qemu-x86_64 (Debian's package qemu-user) is not installed");
    }
    there
}

/// Compiles `source` with gcc.
fn build(folder: &Path, name: &str, source: &str, options: &[&str]) -> PathBuf {
    let file = folder.join(name);
    let program = file.with_extension("");
    std::fs::write(&file, source).expect("a file of ours");
    let mut gcc = Plain::new("gcc");
    gcc.arg("-o").arg(&program).arg(&file).args(options);
    assert!(gcc.status().expect("gcc is there").success());
    program
}

/// Records a run of `program` that must exit with `status`; the program's output and our notices.
fn record(program: &Path, status: i32) -> (PathBuf, String, String) {
    let trace = program.with_extension("trace");
    let output = sunder()
        .args(["trace", "--via", "emulated", "-o"])
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

/// The accesses that begin in `bytes` bytes from `start`: thread, offset, width
/// and kind.
fn accesses(events: &[Event], start: u64, bytes: u64) -> Vec<(u32, u64, u64, Kind)> {
    let inside = |e: &Event| match e.what {
        What::Access { access, .. } => {
            let offset = access.address.0.wrapping_sub(start);
            (offset < bytes).then_some((e.thread, offset, u64::from(access.width), access.kind))
        }
        _ => None,
    };
    events.iter().filter_map(inside).collect()
}

fn address(line: &str) -> u64 {
    u64::from_str_radix(line.trim().trim_start_matches("0x"), 16).expect("an address")
}

/// A program without the C library, so that every access is known.
const LOOP: &str = r#"
.section .cells,"aw",@nobits
.zero 4096
.text
.globl _start
_start:
    lea 0x700000, %rbx
    mov $1000, %ecx
1:  mov (%rbx), %rax
    mov %rax, 8(%rbx)
    addl $1, 16(%rbx)
    lock addl $1, 20(%rbx)
    movups 32(%rbx), %xmm0
    movups %xmm0, 48(%rbx)
    xchg %eax, 64(%rbx)
    push %rcx
    pop %rcx
    dec %ecx
    jnz 1b
    lea 96(%rbx), %rdi
    mov $40, %ecx
    rep stosb
    mov $60, %eax
    mov $3, %edi
    syscall
"#;

#[test]
fn every_access_of_a_loop_is_recorded_once() {
    if !emulator() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let options = [
        "-nostdlib",
        "-static",
        "-no-pie",
        "-Wl,--section-start=.cells=0x700000",
    ];
    let program = build(folder.path(), "loop.s", LOOP, &options);
    let (path, out, err) = record(&program, 3);
    assert_eq!((out.as_str(), err.as_str()), ("", ""));
    let (trace, events) = whole(&path);
    let seen = accesses(&events, 0x70_0000, 4096);
    let count = |offset, width, kind| {
        let is = |a: &&(u32, u64, u64, Kind)| (a.1, a.2, a.3) == (offset, width, kind);
        seen.iter().filter(is).count()
    };
    for (offset, width, kind) in [
        (0, 8, Kind::Read),
        (8, 8, Kind::Write),
        (16, 4, Kind::Update),
        (20, 4, Kind::Atomic),
        (32, 16, Kind::Read),
        (48, 16, Kind::Write),
        (64, 4, Kind::Atomic),
    ] {
        assert_eq!(count(offset, width, kind), 1000, "{offset}");
    }
    for offset in 96..136 {
        assert_eq!(count(offset, 1, Kind::Write), 1);
    }
    assert_eq!(seen.len(), 7 * 1000 + 40);
    let end = trace.end().expect("it is whole");
    // The program's own accesses, and its pushes and pops.
    assert_eq!(end.accesses, 7 * 1000 + 40 + 2 * 1000);
    assert_eq!((end.lost, end.reason), (0, Reason::Exit));
    assert_eq!(trace.header().via, Via::Emulated);
    assert_eq!(trace.header().arguments, [program.to_str().unwrap()]);
    let main = trace
        .modules()
        .first()
        .map(|(_, list)| list[0].path.clone());
    assert_eq!(main.as_deref(), program.to_str());
}

const TURNS: &str = r#"
#include <pthread.h>
#include <stdio.h>
#include <sched.h>
static long by_atomic, by_mutex, by_join, count;
static int turn, full;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static void pass(int from, int to) {
    int expected = from;
    while (!__atomic_compare_exchange_n(&turn, &expected, to, 0, 5, 5)) { expected = from; sched_yield(); }
}
static void *produce(void *unused) {
    for (int i = 0; i < 500; i++) { pass(4 * i, 4 * i + 1); by_atomic = i; pass(4 * i + 1, 4 * i + 2); }
    for (int i = 0; i < 500; i++) {
        pthread_mutex_lock(&mutex);
        while (full) pthread_cond_wait(&changed, &mutex);
        by_mutex = i; full = 1;
        pthread_cond_signal(&changed);
        pthread_mutex_unlock(&mutex);
    }
    for (int i = 0; i < 1000; i++) __atomic_fetch_add(&count, 1, __ATOMIC_RELAXED);
    by_join = 1;
    return unused;
}
int main(void) {
    pthread_t thread; volatile long sum = 0;
    printf("%p\n%p\n%p\n%p\n", (void *)&by_atomic, (void *)&by_mutex, (void *)&by_join, (void *)&count);
    pthread_create(&thread, 0, produce, 0);
    for (int i = 0; i < 500; i++) { pass(4 * i + 2, 4 * i + 3); sum += by_atomic; pass(4 * i + 3, 4 * i + 4); }
    for (int i = 0; i < 500; i++) {
        pthread_mutex_lock(&mutex);
        while (!full) pthread_cond_wait(&changed, &mutex);
        sum += by_mutex; full = 0;
        pthread_cond_signal(&changed);
        pthread_mutex_unlock(&mutex);
    }
    for (int i = 0; i < 1000; i++) __atomic_fetch_add(&count, 1, __ATOMIC_RELAXED);
    pthread_join(thread, 0);
    sum += by_join;
    return sum == 2 * (500L * 499 / 2) + 1 ? 0 : 1;
}
"#;

#[test]
fn what_locked_instructions_locks_and_joins_order_is_in_that_order() {
    if !emulator() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let program = build(folder.path(), "turns.c", TURNS, &["-O1", "-pthread"]);
    let (path, out, _) = record(&program, 0);
    let (trace, events) = whole(&path);
    assert_eq!(trace.threads().len(), 2);
    let lines: Vec<u64> = out.lines().map(address).collect();
    for (object, turns) in lines.iter().zip([500, 500, 1]) {
        let seen = accesses(&events, *object, 8);
        assert_eq!(seen.len(), 2 * turns);
        for pair in seen.chunks(2) {
            assert_eq!((pair[0].3, pair[1].3), (Kind::Write, Kind::Read));
            assert_ne!(pair[0].0, pair[1].0);
        }
    }
    let counted = accesses(&events, lines[3], 8);
    assert_eq!(counted.len(), 2000);
    assert!(counted.iter().all(|a| a.3 == Kind::Atomic && a.2 == 8));
    let of_one = counted.iter().filter(|a| a.0 == counted[0].0).count();
    assert_eq!(of_one, 1000);
}

const HEAP: &str = r#"
#include <stdlib.h>
#include <stdio.h>
void *inner(size_t n) { return malloc(n); }
void *one(void) { char *p = inner(777); *p = 1; return p; }
void *two(void) { char *p = inner(778); *p = 1; return p; }
int main(void) {
    printf("%d\n", getenv("LD_PRELOAD") != 0 || getenv("SUNDER_TRACE") != 0);
    char *a = one(), *b = two(), *c = one();
    a = realloc(a, 100000);
    free(a); free(b); free(c);
    return 0;
}
"#;

#[test]
fn allocations_have_sizes_and_call_stacks() {
    if !emulator() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let program = build(
        folder.path(),
        "heap.c",
        HEAP,
        &[
            "-O1",
            "-fno-inline",
            "-fno-optimize-sibling-calls",
            "-fomit-frame-pointer",
        ],
    );
    let (path, out, _) = record(&program, 0);
    assert_eq!(out, "0\n", "the program sees nothing of us");
    let (trace, events) = whole(&path);
    let mut stacks = Vec::new();
    let mut blocks = Vec::new();
    let mut freed = Vec::new();
    for event in &events {
        match event.what {
            What::Allocate {
                address,
                size,
                stack,
                ..
            } if matches!(size, 777 | 778 | 100_000) => {
                stacks.push((size, trace.stack(stack).unwrap_or_default().to_vec()));
                blocks.push(address);
            }
            What::Free { address } if blocks.contains(&address) => freed.push(address),
            _ => {}
        }
    }
    let sizes: Vec<u64> = stacks.iter().map(|(size, _)| *size).collect();
    assert_eq!(sizes, [777, 778, 777, 100_000]);
    assert_eq!(freed.len(), 4, "the grown block is freed where it was, too");
    let [one, two, again, _] = &stacks[..] else {
        panic!("there are not four allocations");
    };
    // The frames: `inner`, its caller, then `main` in three places.
    assert_eq!(one.1[..2], again.1[..2]);
    assert_eq!(one.1[0], two.1[0]);
    assert_ne!(one.1[1], two.1[1]);
    assert_ne!(one.1[2], again.1[2]);
    assert_eq!(one.1[3..], again.1[3..]);
}

#[test]
fn alignments_that_are_asked_for_are_recorded() {
    if !emulator() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let source = include_str!("../programs/aligned.cpp");
    let program = build(folder.path(), "aligned.cpp", source, &["-lstdc++"]);
    let (path, _, _) = record(&program, 0);
    crate::support::asked::check(&whole(&path).1);
}

#[test]
fn ends_of_all_kinds_are_the_program_s_own() {
    if !emulator() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    for (name, body, status) in [
        ("five", "return 5;", 5),
        ("now", "_exit(6);", 6),
        ("abort", "abort();", 128 + 6),
        ("fault", "*(volatile int *)8 = 1;", 128 + 11),
        ("killed", "kill(getpid(), 9);", 128 + 9),
        (
            "child",
            "int s; if (!fork()) _exit(9); wait(&s); return s >> 8;",
            9,
        ),
        (
            "exec",
            "execl(\"/bin/sh\", \"sh\", \"-c\", \"exit 4\", (char *)0);",
            4,
        ),
    ] {
        let source = format!(
            "#define _GNU_SOURCE\n#include <stdlib.h>\n#include <signal.h>\n#include <unistd.h>\n\
             #include <sys/wait.h>\n\
             int main(void) {{ for (volatile int i = 0; i < 100000; i++); {body} }}"
        );
        let program = build(folder.path(), &format!("{name}.c"), &source, &["-O1"]);
        let (path, _, _) = record(&program, status);
        let trace = Trace::open(&path).expect("what was written is readable");
        // All events but those that were still in the buffer.
        assert!(trace.summary().events > 100_000 - 32_768, "{name}");
        let reason = match name {
            "abort" | "fault" | "killed" => None,
            "exec" => Some(Reason::Exec),
            _ => Some(Reason::Exit),
        };
        assert_eq!(trace.end().map(|e| e.reason), reason, "{name}");
    }
}

#[test]
fn a_real_program_does_under_it_what_it_does_alone() {
    let xz = Path::new("/usr/bin/xz");
    if !emulator() {
        return;
    }
    if !xz.exists() {
        println!("SKIP: xz is not installed");
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let input = folder.path().join("input");
    let text: String = (0..40_000u32)
        .map(|i| format!("{}\n", i * i % 977))
        .collect();
    std::fs::write(&input, text).expect("a file of ours");
    let arguments = ["-T2", "--block-size=65536", "-1", "-c"];
    let alone = Plain::new(xz)
        .args(arguments)
        .arg(&input)
        .output()
        .expect("it runs");
    let trace = folder.path().join("trace");
    let recorded = sunder()
        .args(["trace", "--via", "emulated", "-o"])
        .arg(&trace)
        .arg("--")
        .arg("xz")
        .args(arguments)
        .arg(&input)
        .output()
        .expect("it runs");
    assert!(recorded.status.success());
    assert_eq!(recorded.stdout, alone.stdout);
    let trace = Trace::open(&trace).expect("a trace was recorded");
    assert!(trace.summary().is_complete(), "{:?}", trace.summary());
    assert!(trace.threads().len() >= 3);
}

#[test]
fn what_cannot_be_emulated_is_said_in_a_sentence() {
    let folder = tempfile::tempdir().expect("a folder");
    let trace = folder.path().join("trace");
    let script = folder.path().join("script");
    std::fs::write(&script, "#!/bin/sh\nexit 0\n").expect("a file of ours");
    let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&script, executable).expect("a file of ours");
    let refused = |program: &Path, path: Option<&Path>| {
        let mut command = sunder();
        command
            .args(["trace", "--via", "emulated", "-o"])
            .arg(&trace);
        if let Some(path) = path {
            command.env("PATH", path);
        }
        let output = command.arg("--").arg(program).output().expect("it runs");
        assert!(!output.status.success());
        assert!(!trace.exists());
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let said = refused(Path::new("/bin/true"), Some(folder.path()));
    assert!(said.contains("package qemu-user"), "{said}");
    if emulator() {
        let said = refused(&script, None);
        assert!(said.contains("name its interpreter"), "{said}");
    }
}

/// The emulator does not begin without our plugin, so it must be able to load it when Sunder has been
/// killed meanwhile; and the program must not see by which descriptor it came. Here the emulator is
/// a script that kills Sunder before it goes on as the emulator.
#[test]
fn a_program_begins_though_sunder_was_killed_before_the_emulator_did() {
    if !emulator() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let path = std::env::var("PATH").expect("there is a path");
    let script = folder.path().join("qemu-x86_64");
    let text = format!("#!/bin/sh\nkill -9 $PPID\nPATH='{path}' exec qemu-x86_64 \"$@\"\n");
    std::fs::write(&script, text).expect("a file of ours");
    let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&script, executable).expect("a file of ours");
    // The recorder's own descriptor has such a number, so that it is not in the program's way.
    let list = [
        "/bin/sh",
        "-c",
        "ls /proc/self/fd/ | grep -v '....'; exit 3",
    ];
    let alone = Plain::new(list[0]).args(&list[1..]).output();
    let alone = alone.expect("it runs").stdout;
    let mut killed = crate::support::plain_sunder();
    killed
        .args(["trace", "--via", "emulated", "-o"])
        .arg(folder.path().join("trace"))
        .arg("--")
        .args(list)
        .env("PATH", format!("{}:{path}", folder.path().display()));
    // Its end of the pipe is open until the program ends.
    let seen = killed.output().expect("it runs");
    assert_eq!(
        std::os::unix::process::ExitStatusExt::signal(&seen.status),
        Some(libc::SIGKILL)
    );
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert_eq!(text(&seen.stdout), text(&alone), "{}", text(&seen.stderr));
}
