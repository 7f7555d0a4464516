//! Hardware watchpoints on a real program: two threads add to neighbouring words, and a burst must
//! record exactly that.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use sunder_access::{Address, CodeAddress, Kind, ProcessId, Provenance, ThreadId};
use sunder_observe::WatchError;
use sunder_observe::machine::Capabilities;
use sunder_observe::watch::{
    Budget, BurstRequest, Code, CodeBefore, CodeDecoder, ExecutionRequest, Watcher,
};

/// Adds to its own word for ever. The two functions differ, so that each has an instruction that
/// can be found. Each iteration takes some hundred nanoseconds.
const SOURCE: &str = r#"
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>
#include <sys/syscall.h>
static volatile long line[8] __attribute__((aligned(64)));
__attribute__((noinline)) static void pause_a_little(void) {
    for (volatile int i = 0; i < 50; i++) {}
}
__attribute__((noinline)) void adds_to_first(void) {
    for (;;) { __asm__ volatile("addq $1, %0" : "+m"(line[0])); pause_a_little(); }
}
__attribute__((noinline)) void adds_to_second(void) {
    for (;;) { __atomic_fetch_add(&line[1], 1, __ATOMIC_SEQ_CST); pause_a_little(); }
}
static void say(const char *what, void *code) {
    printf("%s %ld %p\n", what, syscall(SYS_gettid), code);
    fflush(stdout);
}
static void *second(void *unused) { say("second", adds_to_second); adds_to_second(); return unused; }
int main(void) {
    pthread_t thread;
    printf("line 0 %p\n", (void *)line);
    say("first", adds_to_first);
    pthread_create(&thread, 0, second, 0);
    adds_to_first();
}
"#;

struct Target {
    child: Child,
    line: u64,
    first: (u32, u64),
    second: (u32, u64),
}

impl Drop for Target {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn start(folder: &Path) -> Target {
    let (source, program) = (folder.join("adds.c"), folder.join("adds"));
    std::fs::write(&source, SOURCE).unwrap();
    let built = Command::new("gcc")
        .args(["-O1", "-pthread", "-o"])
        .args([&program, &source])
        .status()
        .expect("gcc is part of the set-up");
    assert!(built.success());
    let mut child = Command::new(&program)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let (mut line, mut first, mut second) = (0, (0, 0), (0, 0));
    for text in lines.take(3) {
        let text = text.unwrap();
        let [what, thread, address] = text.split(' ').collect::<Vec<_>>()[..] else {
            panic!("{text}");
        };
        let address = u64::from_str_radix(address.trim_start_matches("0x"), 16).unwrap();
        let thread = thread.parse().unwrap();
        match what {
            "line" => line = address,
            "first" => first = (thread, address),
            _ => second = (thread, address),
        }
    }
    Target {
        child,
        line,
        first,
        second,
    }
}

/// The target's code from the start of the two functions, read from its memory.
struct Functions {
    process: u32,
    starts: [u64; 2],
}

impl CodeBefore for Functions {
    fn code_before(&mut self, ip: CodeAddress) -> Option<Code> {
        use std::os::unix::fs::FileExt;
        let start = self.starts.into_iter().filter(|&s| s <= ip.0).max()?;
        let memory = std::fs::File::open(format!("/proc/{}/mem", self.process)).ok()?;
        let mut bytes = vec![0; (ip.0 - start + 16) as usize];
        memory.read_exact_at(&mut bytes, start).ok()?;
        Some(Code {
            start: CodeAddress(start),
            bytes,
            boundary: true,
        })
    }
}

/// A watcher of the target with this budget, and a decoder of its hits.
fn watch(target: &Target, budget: Budget) -> (Watcher, CodeDecoder<Functions>) {
    let process = target.child.id();
    let functions = Functions {
        process,
        starts: [target.first.1, target.second.1],
    };
    let watcher = Watcher::new(ProcessId(process), budget);
    (watcher, CodeDecoder::new(functions))
}

/// A budget that is never spent.
const GENEROUS: Budget = Budget {
    share: 1.0,
    advance: Duration::from_secs(1),
};

fn watchable() -> bool {
    let found = Capabilities::probe().watchpoints;
    if !found.available {
        println!("SKIP: {}", found.detail);
    }
    found.available
}

#[test]
fn burst_records_words_threads_kinds_and_order() {
    if !watchable() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let target = start(folder.path());
    let (mut watcher, mut decoder) = watch(&target, GENEROUS);
    let request = BurstRequest {
        words: (0..4).map(|i| Address(target.line + 8 * i)).collect(),
        threads: vec![ThreadId(target.first.0), ThreadId(target.second.0)],
        max_hits_per_thread: 100,
        // On a busy machine both threads must get a CPU; the hits, not this, end the burst.
        max_duration: Duration::from_secs(5),
    };
    let burst = watcher.burst(&request, &mut decoder).unwrap();

    assert_eq!(burst.watched, request.words);
    assert_eq!((burst.threads, burst.skipped), (2, 0));
    assert_eq!((burst.suppressed, burst.guessed), (0, 0), "{burst:?}");
    let limit = request.max_hits_per_thread as usize;
    for (thread, word, kind, code) in [
        (target.first.0, 0, Kind::Update, target.first.1),
        (target.second.0, 1, Kind::Atomic, target.second.1),
    ] {
        let own: Vec<_> = burst
            .accesses
            .iter()
            .filter(|access| access.thread == ThreadId(thread))
            .collect();
        // The kernel disables the watchpoint a moment after the last of its hits.
        assert!(
            own.len() >= limit && own.len() <= 2 * limit,
            "{}",
            own.len()
        );
        for access in own {
            assert_eq!(access.address, Address(target.line + 8 * word));
            assert_eq!((access.width, access.kind), (8, kind));
            assert_eq!(access.provenance, Provenance::Watched);
            assert!(access.instruction >= CodeAddress(code));
        }
    }
    assert!(burst.accesses.is_sorted_by_key(|access| access.time));
    assert!(burst.complete_until >= burst.started);
    let changes = burst
        .accesses
        .windows(2)
        .filter(|pair| pair[0].thread != pair[1].thread)
        .count();
    // Each thread has accesses, so the thread changes at least once; how often
    // depends on whether both had a CPU at the same time.
    assert!(changes >= 1);
    println!("{changes} changes of thread in {} hits", burst.hits);

    let statistics = watcher.statistics();
    assert_eq!((statistics.bursts, statistics.hits), (1, burst.hits));
}

/// A data breakpoint finds the instruction that writes; then breakpoints on it and on an instruction
/// that is never executed.
#[test]
fn an_execution_burst_stops_at_the_instruction_before_it_is_executed() {
    if !watchable() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let target = start(folder.path());
    let (mut watcher, mut decoder) = watch(&target, GENEROUS);
    let second = ThreadId(target.second.0);
    let request = BurstRequest {
        words: vec![Address(target.line + 8)],
        threads: vec![second],
        max_hits_per_thread: 2,
        max_duration: Duration::from_secs(5),
    };
    let burst = watcher.burst(&request, &mut decoder).unwrap();
    let writes = burst.accesses[0].instruction;

    let request = ExecutionRequest {
        // The other thread's function is not the second one's to execute.
        instructions: vec![writes, CodeAddress(target.first.1)],
        threads: vec![second],
        max_hits_per_thread: 10,
        max_duration: Duration::from_secs(5),
    };
    let seen = watcher.executions(&request).unwrap();
    assert_eq!(seen.instructions, request.instructions);
    let [(thread, hits)] = seen.hits.as_slice() else {
        panic!("{seen:?}");
    };
    assert_eq!((*thread, hits.len()), (second, 10));
    for hit in hits {
        assert_eq!(hit.registers.ip, writes);
        assert_eq!((hit.process.0, hit.period_ns), (target.child.id(), 0));
    }
    assert!(hits.is_sorted_by_key(|hit| hit.time));
    // Nothing stops it any more: the watchpoint is hit again.
    let request = BurstRequest {
        words: vec![Address(target.line + 8)],
        threads: vec![second],
        max_hits_per_thread: 2,
        max_duration: Duration::from_secs(5),
    };
    let burst = watcher.burst(&request, &mut decoder).unwrap();
    assert_eq!(burst.accesses[0].instruction, writes);
}

#[test]
fn a_spent_budget_defers_and_touches_nothing() {
    if !watchable() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let target = start(folder.path());
    let budget = Budget {
        share: 0.0,
        advance: Duration::ZERO,
    };
    let (mut watcher, mut decoder) = watch(&target, budget);
    let request = BurstRequest {
        words: vec![Address(target.line)],
        threads: vec![ThreadId(target.first.0)],
        max_hits_per_thread: 10,
        max_duration: Duration::from_millis(1),
    };
    let refused = watcher.burst(&request, &mut decoder);
    assert!(matches!(refused, Err(WatchError::BudgetSpent(_))));
    assert_eq!(watcher.statistics().deferred, 1);
    assert_eq!(watcher.statistics().bursts, 0);
}

#[test]
fn threads_that_are_gone_are_skipped_and_taken_slots_are_named() {
    if !watchable() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut target = start(folder.path());
    let (mut watcher, mut decoder) = watch(&target, GENEROUS);
    // Above the kernel's highest thread id.
    let missing = ThreadId(5_000_000);
    let mut request = BurstRequest {
        words: vec![Address(target.line)],
        threads: vec![missing, ThreadId(target.first.0)],
        max_hits_per_thread: 5,
        max_duration: Duration::from_secs(5),
    };
    let burst = watcher.burst(&request, &mut decoder).unwrap();
    assert_eq!((burst.threads, burst.skipped), (1, 1));

    target.child.kill().unwrap();
    target.child.wait().unwrap();
    request.threads = vec![ThreadId(target.first.0)];
    assert!(matches!(
        watcher.burst(&request, &mut decoder),
        Err(WatchError::NoThreads(_))
    ));
}

#[test]
fn many_bursts_stay_in_their_budget() {
    if !watchable() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let target = start(folder.path());
    let budget = Budget {
        share: 0.01,
        advance: Duration::from_millis(5),
    };
    let (mut watcher, mut decoder) = watch(&target, budget);
    let request = BurstRequest {
        words: (0..4).map(|i| Address(target.line + 8 * i)).collect(),
        threads: vec![ThreadId(target.first.0), ThreadId(target.second.0)],
        max_hits_per_thread: 1000,
        max_duration: Duration::from_millis(20),
    };
    let deadline = Instant::now() + Duration::from_secs(20);
    for _ in 0..100 {
        match watcher.burst(&request, &mut decoder) {
            Ok(_) | Err(WatchError::BudgetSpent(_)) => {}
            // A child that another test has just forked has copies of the last burst's descriptors,
            // and so of the slots, until it executes its program.
            Err(WatchError::SlotsTaken(_)) if Instant::now() < deadline => {}
            Err(other) => panic!("{other}"),
        }
        std::thread::sleep(Duration::from_millis(3));
    }
    let seen = watcher.statistics();
    assert!(seen.bursts >= 1, "{seen:?}");
    // Each thread hits one word, so the kernel's limits keep the budget. Hits that a watchpoint
    // reports while it is being disabled are added to the last burst.
    let slack = 20 * seen.hit_cost;
    let allowed = budget.advance + seen.target_time.mul_f64(budget.share) + slack;
    assert!(seen.cost <= allowed, "{allowed:?} {seen:?}");
    println!("{seen:?}");
}
