//! Values that are read from a living program's memory, beside its registers.
//!
//! The program of the first test runs until the test has seen enough, so that a busy machine makes
//! it take longer and not fail; after a minute the program ends by itself.

use crate::support::{compile, perf_allowed};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use sunder_access::{Address, CodeAddress, Kind, ProcessId, ThreadId, Time};
use sunder_observe::{
    Decoded, Decoder, Event, FrequencyPlan, Launch, NearAccess, PerfSampler, ProcessCode,
    RawSample, Registers, Slot, SlotReader,
};

fn now() -> Time {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the pointer to `time` is valid.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    Time(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

/// The address and the thread that the program has printed, if it has.
fn printed(output: &Path) -> Option<(Address, ThreadId)> {
    let text = std::fs::read_to_string(output).ok()?;
    let (address, thread) = text.strip_suffix('\n')?.split_once(' ')?;
    let address = u64::from_str_radix(address.trim_start_matches("0x"), 16).ok()?;
    Some((Address(address), ThreadId(thread.parse().ok()?)))
}

#[test]
fn a_thread_that_only_reads_through_a_pointer_in_memory_is_seen() {
    let directory = tempfile::tempdir().unwrap();
    let Some(program) = compile(directory.path(), "slots", &["-O0"]) else {
        return;
    };
    if !perf_allowed() {
        return;
    }
    let output = directory.path().join("output");
    let script = format!("exec '{}' > '{}'", program.display(), output.display());
    let prepared = Launch::new("sh")
        .arguments(["-c", &script])
        .prepare()
        .unwrap();
    let plan = FrequencyPlan::fixed(1000);
    let mut sampler = PerfSampler::for_child(prepared.pid(), plan, false).unwrap();
    let mut child = prepared.go().unwrap();
    let (mut code, mut decoder) = (ProcessCode::new(), Decoder::new());
    let mut reader = SlotReader::new();
    let mut seen: Vec<(ThreadId, Address, Kind, u8)> = Vec::new();
    loop {
        sampler.wait(Duration::from_millis(10)).unwrap();
        let mut batch = Vec::new();
        sampler.drain(&mut |event| {
            code.observe(&event);
            if let Event::Sample(sample) = event {
                let mut decoded = Decoded::default();
                decoder.decode(&sample, &mut code, &mut decoded);
                reader.sampled(&sample, &decoded);
                batch.push((sample, decoded));
            }
        });
        reader.read(now());
        if let Some(why) = reader.refusal() {
            println!("SKIP: the program's memory cannot be read: {why}");
            break;
        }
        for (sample, decoded) in &batch {
            for near in &decoded.near {
                let at = reader.resolve(sample, decoded, near);
                seen.extend(at.map(|at| (sample.thread, at, near.kind, near.width)));
            }
        }
        let of_reader = |(address, thread)| {
            let is = |one: &&(ThreadId, Address, Kind, u8)| (one.0, one.1) == (thread, address);
            seen.iter().filter(is).count()
        };
        if printed(&output).map_or(0, of_reader) >= 5 {
            break;
        }
        let ended = child.try_wait().unwrap();
        assert!(ended.is_none(), "the reader was not seen: {seen:x?}");
    }
    // SAFETY: the child has not been waited for, so the number is still its own.
    unsafe { libc::kill(child.pid().0 as i32, libc::SIGKILL) };
    child.wait().unwrap();
    // The resolved accesses are those of the reading thread.
    let (address, thread) = printed(&output).unwrap_or_default();
    for one in seen.iter().filter(|one| one.0 == thread) {
        assert_eq!((one.1, one.2, one.3), (address, Kind::Read, 8));
    }
}

/// A thread that only runs, or only sleeps.
struct TestThread {
    thread: ThreadId,
    stop: Arc<AtomicBool>,
}

impl TestThread {
    fn new(runs: bool) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (tell, told) = std::sync::mpsc::channel();
        let stopped = Arc::clone(&stop);
        std::thread::spawn(move || {
            // SAFETY: it has no preconditions.
            tell.send(unsafe { libc::gettid() } as u32).unwrap();
            while !stopped.load(Ordering::Relaxed) {
                if runs {
                    std::hint::spin_loop();
                } else {
                    std::thread::park();
                }
            }
        });
        let thread = ThreadId(told.recv().unwrap());
        // The thread is about to sleep.
        let state = || std::fs::read_to_string(format!("/proc/self/task/{thread}/stat")).unwrap();
        while !runs && !state().contains(") S ") {
            std::thread::yield_now();
        }
        Self { thread, stop }
    }
}

impl Drop for TestThread {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// A sample of `thread` of this process, at `time`, that needs the slot at `address`. Its stack is
/// far away from there unless `on_stack`.
fn of(
    thread: ThreadId,
    time: Time,
    address: u64,
    on_stack: bool,
    function: u64,
) -> (RawSample, Decoded) {
    let mut general = [0; 16];
    general[4] = if on_stack { address - 64 } else { 1 << 62 };
    let sample = RawSample {
        time,
        process: ProcessId(std::process::id()),
        thread,
        cpu: 0,
        period_ns: 1,
        registers: Registers {
            general,
            ip: CodeAddress(function),
        },
    };
    let near = NearAccess {
        instruction: CodeAddress(function),
        kind: Kind::Read,
        width: 8,
        distance: -1,
        through: Some(Slot {
            address: Address(address),
            add: 16,
        }),
        within: None,
        suspect: false,
        avoidable: false,
    };
    let decoded = Decoded {
        near: vec![near],
        function: Some(CodeAddress(function)),
        ..Decoded::default()
    };
    (sample, decoded)
}

/// The answer for the last of some samples, with a reading after each; before each reading
/// `between` may change the memory. `None` if reading is refused.
fn told(
    other: &TestThread,
    slot: &AtomicU64,
    functions: &[u64],
    on_stack: bool,
    between: impl Fn(usize),
) -> Option<Option<Address>> {
    let mut reader = SlotReader::new();
    let mut answer = None;
    for (number, &function) in functions.iter().enumerate() {
        let address = slot.as_ptr() as u64;
        let (sample, decoded) = of(other.thread, now(), address, on_stack, function);
        reader.sampled(&sample, &decoded);
        between(number);
        reader.read(now());
        answer = reader.resolve(&sample, &decoded, &decoded.near[0]);
    }
    if let Some(why) = reader.refusal() {
        println!("SKIP: memory cannot be read: {why}");
        return None;
    }
    Some(answer)
}

#[test]
fn a_pointer_counts_only_between_two_readings_that_agree() {
    let (other, slot) = (TestThread::new(true), AtomicU64::new(0x1000));
    let still = |_| {};
    // There is no reading before the first sample.
    let Some(first) = told(&other, &slot, &[1], false, still) else {
        return;
    };
    assert_eq!(first, None);
    assert_eq!(
        told(&other, &slot, &[1; 2], false, still),
        Some(Some(Address(0x1010)))
    );
    // Changed between the readings around the last sample, or before them.
    let change_at = |when| {
        let slot = &slot;
        move |now| {
            if now == when {
                slot.fetch_add(0x1000, Ordering::Relaxed);
            }
        }
    };
    assert_eq!(
        told(&other, &slot, &[1; 3], false, change_at(2)),
        Some(None)
    );
    assert_eq!(
        told(&other, &slot, &[1; 3], false, change_at(1)),
        Some(Some(Address(0x3010)))
    );
}

/// A sleeping thread is not at the instruction of its samples.
#[test]
fn the_slots_of_a_sleeping_thread_are_not_read() {
    let (other, slot) = (TestThread::new(false), AtomicU64::new(0x1000));
    if let Some(told) = told(&other, &slot, &[1; 10], false, |_| {}) {
        assert_eq!(told, None);
    }
}

#[test]
fn a_slot_on_the_stack_counts_only_where_the_thread_is_at_home() {
    let (other, slot) = (TestThread::new(true), AtomicU64::new(0x1000));
    let Some(home) = told(&other, &slot, &[1; 10], true, |_| {}) else {
        return;
    };
    assert_eq!(home, Some(Address(0x1010)));
    // Too few samples, and then every other sample in another function.
    assert_eq!(told(&other, &slot, &[1; 7], true, |_| {}), Some(None));
    assert_eq!(
        told(&other, &slot, &[1, 2].repeat(10), true, |_| {}),
        Some(None)
    );
    // For memory outside of the stack, the thread's function does not matter.
    assert_eq!(
        told(&other, &slot, &[1, 2].repeat(10), false, |_| {}),
        Some(Some(Address(0x1010)))
    );
}

/// An unmapped page has no value, and does not prevent other readings.
#[test]
fn a_slot_that_is_not_mapped_does_no_harm() {
    let (other, slot) = (TestThread::new(true), AtomicU64::new(0x1000));
    let mut reader = SlotReader::new();
    let address = slot.as_ptr() as u64;
    let mut answers = (None, None);
    for _ in 0..2 {
        // The first page is not mapped.
        let (sample, bad) = of(other.thread, now(), 64, false, 1);
        let (_, good) = of(other.thread, now(), address, false, 1);
        reader.sampled(&sample, &bad);
        reader.sampled(&sample, &good);
        reader.read(now());
        answers = (
            reader.resolve(&sample, &bad, &bad.near[0]),
            reader.resolve(&sample, &good, &good.near[0]),
        );
    }
    if let Some(why) = reader.refusal() {
        println!("SKIP: memory cannot be read: {why}");
        return;
    }
    assert_eq!(answers, (None, Some(Address(0x1010))));
}
