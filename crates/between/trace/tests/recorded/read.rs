//! Damaged files: each truncation and random damage must give an error or the undamaged part,
//! reported as partial; never a panic, never an event that was not recorded.

use proptest::prelude::*;
use std::path::{Path, PathBuf};
use sunder_access::{Span, ThreadId, Time};
use sunder_recorder::{Buffer, Cursor, Recorder, Start};
use sunder_trace::TraceError;
use sunder_trace::block::{BlockHeader, HEADER_BYTES, Kind};
use sunder_trace::meta::{PREFIX_BYTES, Reason, Via};
use sunder_trace::read::{Filter, Kinds, Trace, What};
use sunder_trace::slot::{Key, Slot, tag};

const THREADS: u64 = 2;
const EACH: u64 = 33_000;

/// A trace of two threads, one after the other in the file, with several blocks
/// each.
fn sample() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace");
    let c = format!("{}\0", path.display());
    let recorder = Recorder::new();
    let start = Start {
        path: c.as_bytes(),
        via: Via::Other,
        line_size: 64,
        program: Some((b"/p", b"p\0")),
    };
    recorder.start(&start).unwrap();
    for t in 0..THREADS {
        let place = Cursor::default();
        // SAFETY: the memory outlives the record.
        unsafe {
            let buffer = recorder.attach(&raw const place, 0, 0).unwrap();
            recorder.stack(buffer, &[1, t + 2]);
            for i in 0..EACH {
                let value = (t << 40) + i.wrapping_mul(0x9e37_79b9) % 5000;
                recorder.push(buffer, Slot::new(value, Key::new(tag::READ, 8, 16 + i % 7)));
            }
            recorder.detach(buffer);
        }
    }
    recorder.finish(Reason::Exit);
    (folder, path)
}

/// The blocks with a thread's events in a file: where each begins, and its header.
fn blocks_of(bytes: &[u8], thread: u32) -> Vec<(usize, BlockHeader)> {
    let mut blocks = Vec::new();
    let mut at = PREFIX_BYTES;
    while let Some(head) = bytes.get(at..).and_then(|rest| rest.first_chunk()) {
        let (header, _) = BlockHeader::from_bytes(head).expect("a sound file");
        if header.kind == Some(Kind::Events) && header.thread == thread {
            blocks.push((at, header));
        }
        at += HEADER_BYTES + header.stored as usize;
    }
    blocks
}

fn write(folder: &tempfile::TempDir, bytes: &[u8]) -> PathBuf {
    let path = folder.path().join("damaged");
    std::fs::write(&path, bytes).unwrap();
    path
}

fn all(trace: &Trace) -> (Vec<(u32, What)>, u64) {
    let mut events = trace.events(Filter::default());
    let list = events.by_ref().map(|e| (e.thread, strip(e.what))).collect();
    (list, events.damaged_blocks())
}

/// Removes what damage may change. Times come from the last readable block, and a thread's unique
/// number depends on how many earlier threads had the same number of the kernel. The thread's index
/// does not change.
fn strip(what: What) -> What {
    match what {
        What::Access { mut access, atomic } => {
            access.time = Time(0);
            access.thread = ThreadId(0);
            What::Access { access, atomic }
        }
        other => other,
    }
}

/// Whether `part` consists of elements of `whole`, in their order.
fn is_part(part: &[(u32, What)], whole: &[(u32, What)]) -> bool {
    let mut rest = whole.iter();
    part.iter().all(|event| rest.any(|e| e == event))
}

fn check(damaged: &Path, whole: &[(u32, What)]) {
    let trace = match Trace::open(damaged) {
        Ok(trace) => trace,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return;
        }
    };
    let (events, damaged) = all(&trace);
    assert!(is_part(&events, whole));
    let whole_said = trace.summary().is_complete() && damaged == 0;
    assert!(!whole_said || events.len() == whole.len());
    assert_eq!(trace.verify() > 0, damaged > 0);
}

#[test]
fn every_truncated_file_gives_the_events_before_the_cut_and_is_reported() {
    let (folder, path) = sample();
    let bytes = std::fs::read(&path).unwrap();
    let (whole, _) = all(&Trace::open(&path).unwrap());
    assert_eq!(whole.len() as u64, THREADS * (EACH + 2));
    let mut cuts: Vec<usize> = (0..bytes.len()).step_by(9973).collect();
    cuts.extend((100..300).step_by(7));
    cuts.extend((bytes.len() - 200..bytes.len()).step_by(7));
    for cut in cuts {
        let path = write(&folder, &bytes[..cut]);
        check(&path, &whole);
        if let Ok(trace) = Trace::open(&path) {
            assert!(!trace.summary().is_complete(), "cut at {cut}");
        }
    }
}

#[test]
fn files_that_are_no_traces_are_refused_by_what_they_are() {
    let (folder, path) = sample();
    let bytes = std::fs::read(&path).unwrap();
    let open = |bytes: &[u8]| Trace::open(&write(&folder, bytes)).unwrap_err();
    assert!(matches!(open(b""), TraceError::Empty { .. }));
    assert!(matches!(open(b"PERFILE2"), TraceError::Foreign { .. }));
    assert!(matches!(open(&[0; 500]), TraceError::Foreign { .. }));
    assert!(matches!(open(&bytes[..60]), TraceError::NoHeader { .. }));
    assert!(matches!(open(&bytes[..128]), TraceError::NoHeader { .. }));
    let mut newer = bytes;
    newer[8] = 2;
    assert!(matches!(open(&newer), TraceError::Newer { version: 2, .. }));
    let missing = Trace::open(Path::new("/nowhere/at/all")).unwrap_err();
    assert!(matches!(missing, TraceError::File { .. }));
    let device = Trace::open(Path::new("/dev/null")).unwrap_err();
    assert!(matches!(device, TraceError::NotAFile { .. }));
}

#[test]
fn a_gap_in_the_file_loses_only_the_blocks_that_it_covers() {
    let (folder, path) = sample();
    let mut bytes = std::fs::read(&path).unwrap();
    let (from, block) = blocks_of(&bytes, 1)[0];
    let lost = u64::from(block.count);
    bytes[from..from + HEADER_BYTES + 10].fill(0);
    let damaged = Trace::open(&write(&folder, &bytes)).unwrap();
    assert_eq!(damaged.summary().gaps, 1);
    assert_eq!(damaged.summary().missing_blocks, 1);
    assert!(!damaged.summary().is_complete());
    let (events, _) = all(&damaged);
    assert_eq!(events.len() as u64, THREADS * (EACH + 2) - lost);
}

#[test]
fn a_thread_of_which_nothing_is_left_leaves_the_others_as_they_are() {
    let (folder, path) = sample();
    let mut bytes = std::fs::read(&path).unwrap();
    let trace = Trace::open(&path).unwrap();
    let (whole, _) = all(&trace);
    for (offset, _) in blocks_of(&bytes, 1) {
        bytes[offset] ^= 1;
    }
    let damaged = Trace::open(&write(&folder, &bytes)).unwrap();
    assert!(!damaged.summary().is_complete());
    let (events, _) = all(&damaged);
    let second: Vec<_> = whole
        .into_iter()
        .filter(|(thread, _)| *thread == 2)
        .collect();
    assert_eq!(events, second);
}

#[test]
fn filters_select_the_named_events() {
    let (_folder, path) = sample();
    let trace = Trace::open(&path).unwrap();
    let count = |filter: Filter| trace.events(filter).count() as u64;
    let one = Filter {
        threads: Some(vec![2]),
        ..Filter::default()
    };
    assert_eq!(count(one.clone()), EACH + 2);
    let reads = Filter {
        kinds: Kinds::READS,
        ..one
    };
    assert_eq!(count(reads), EACH);
    let none = Filter {
        kinds: Kinds::WRITES,
        ..Filter::default()
    };
    assert_eq!(count(none), 0);
    let range = Span::new(sunder_access::Address(1 << 40), 100);
    let near = Filter {
        range: Some(range),
        kinds: Kinds::ACCESSES,
        ..Filter::default()
    };
    let expected = (0..EACH).filter(|i| i.wrapping_mul(0x9e37_79b9) % 5000 < 100);
    assert_eq!(count(near), expected.count() as u64);
}

#[test]
fn damage_anywhere_is_never_taken_for_data() {
    let (folder, path) = sample();
    let bytes = std::fs::read(&path).unwrap();
    let (whole, _) = all(&Trace::open(&path).unwrap());
    let config = ProptestConfig::with_cases(24);
    proptest!(config, |(damage in prop::collection::vec((any::<prop::sample::Index>(), 1..=255u8), 1..5))| {
        let mut damaged = bytes.clone();
        for (at, flip) in damage {
            damaged[at.index(bytes.len())] ^= flip;
        }
        check(&write(&folder, &damaged), &whole);
    });
}

#[test]
fn threads_that_ran_one_after_the_other_run_side_by_side() {
    let (_folder, path) = sample();
    let trace = Trace::open(&path).unwrap();
    let kinds = Filter {
        kinds: Kinds::ACCESSES,
        ..Filter::default()
    };
    let recorded: Vec<u32> = trace.events(kinds.clone()).map(|e| e.thread).collect();
    assert!(recorded.is_sorted(), "one after the other");
    let parallel: Vec<u32> = trace.events_in_parallel(kinds).map(|e| e.thread).collect();
    assert_eq!(parallel.len(), recorded.len());
    // Both threads make one access in every unit of time.
    assert!(parallel.chunks(2).all(|turn| turn[0] != turn[1]));
}

/// A trace that `fill` records.
fn recorded_by(fill: impl FnOnce(&Recorder)) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace");
    let c = format!("{}\0", path.display());
    let recorder = Recorder::new();
    let start = Start {
        path: c.as_bytes(),
        via: Via::Other,
        line_size: 64,
        program: Some((b"/p", b"p\0")),
    };
    recorder.start(&start).unwrap();
    fill(&recorder);
    recorder.finish(Reason::Exit);
    (folder, path)
}

/// The addresses of the accesses, in their order.
fn addresses(events: impl Iterator<Item = sunder_trace::Event>) -> Vec<u64> {
    let address = |event: sunder_trace::Event| match event.what {
        What::Access { access, .. } => Some(access.address.0),
        _ => None,
    };
    events.filter_map(address).collect()
}

/// A trace of two threads, filled by `fill`; the recorder's functions record acquires and releases.
fn recorded(fill: impl Fn(&Recorder, [&Buffer; 2])) -> (tempfile::TempDir, PathBuf) {
    let places = [Cursor::default(), Cursor::default()];
    // SAFETY: the memory outlives the record.
    recorded_by(|recorder| unsafe {
        let buffers = [0, 1].map(|i| recorder.attach(&raw const places[i], 0, 0).unwrap());
        fill(recorder, buffers);
        for buffer in buffers {
            recorder.detach(buffer);
        }
    })
}

#[test]
fn only_events_that_a_lock_orders_keep_their_order() {
    use sunder_trace::slot::Sync;
    let access = |value: u64| Slot::new(value, Key::new(tag::WRITE, 8, 16));
    // The first thread writes 100 times, then releases a lock; the second writes 10 times, takes
    // the lock, and writes 10 times more.
    let (_folder, path) = recorded(|recorder, [first, second]| {
        // SAFETY: both buffers are attached and used by this thread alone.
        unsafe {
            recorder.push_after(second, Slot::sync(Sync::Fence, 0));
            for i in 0..10 {
                recorder.push(second, access(1000 + i));
            }
            for i in 0..100 {
                recorder.push(first, access(i));
            }
            recorder.push_before(first, Slot::sync(Sync::MutexUnlock, 64));
            recorder.push_after(second, Slot::sync(Sync::MutexLock, 64));
            for i in 10..20 {
                recorder.push(second, access(1000 + i));
            }
        }
    });
    let trace = Trace::open(&path).unwrap();
    let order = addresses(trace.events_in_parallel(Filter {
        kinds: Kinds::ACCESSES,
        ..Filter::default()
    }));
    assert_eq!(order.len(), 120);
    let place = |address: u64| order.iter().position(|&a| a == address).unwrap();
    // Side by side before the lock …
    assert!(place(1009) < 25);
    // … and after all accesses before the unlock.
    assert!(place(1010) > place(99));
}

#[test]
fn a_lock_of_another_object_orders_nothing() {
    use sunder_trace::slot::Sync;
    let access = |value: u64| Slot::new(value, Key::new(tag::WRITE, 8, 16));
    // One after the other, as on one CPU, each under a lock of its own.
    let (_folder, path) = recorded(|recorder, both| {
        // SAFETY: both buffers are attached and used by this thread alone.
        unsafe {
            for (i, buffer) in both.into_iter().enumerate() {
                let lock = 64 * (i as u64 + 1);
                recorder.push_after(buffer, Slot::sync(Sync::MutexLock, lock));
                for j in 0..100 {
                    recorder.push(buffer, access(1000 * lock + j));
                }
                recorder.push_before(buffer, Slot::sync(Sync::MutexUnlock, lock));
            }
        }
    });
    let trace = Trace::open(&path).unwrap();
    let order: Vec<u32> = trace
        .events_in_parallel(Filter {
            kinds: Kinds::ACCESSES,
            ..Filter::default()
        })
        .map(|event| event.thread)
        .collect();
    assert_eq!(order.len(), 200);
    assert!(order.chunks(2).all(|turn| turn[0] != turn[1]));
}

#[test]
fn a_wait_on_a_condition_variable_releases_an_unknown_mutex() {
    use sunder_trace::slot::Sync;
    let access = |value: u64| Slot::new(value, Key::new(tag::WRITE, 8, 16));
    // The first thread has a mutex and waits for a condition; the second takes the mutex, signals
    // and releases it; then the first goes on.
    let (_folder, path) = recorded(|recorder, [first, second]| {
        // SAFETY: both buffers are attached and used by this thread alone.
        unsafe {
            recorder.push_after(first, Slot::sync(Sync::MutexLock, 64));
            for i in 0..100 {
                recorder.push(first, access(i));
            }
            recorder.push_before(first, Slot::sync(Sync::ConditionWait, 128));
            recorder.push_after(second, Slot::sync(Sync::MutexLock, 64));
            for i in 0..100 {
                recorder.push(second, access(1000 + i));
            }
            recorder.push_before(second, Slot::sync(Sync::ConditionSignal, 128));
            recorder.push(second, access(1100));
            recorder.push_before(second, Slot::sync(Sync::MutexUnlock, 64));
            recorder.push_after(first, Slot::sync(Sync::ConditionWoken, 128));
            recorder.push(first, access(100));
        }
    });
    let trace = Trace::open(&path).unwrap();
    let order = addresses(trace.events_in_parallel(Filter {
        kinds: Kinds::ACCESSES,
        ..Filter::default()
    }));
    let wanted: Vec<u64> = (0..100).chain(1000..=1100).chain([100]).collect();
    assert_eq!(order, wanted);
}

/// Two threads that come to one lock after `before` accesses each, and hold it for a hundred more.
/// In the recording, the thread `wins` had it first. The addresses in one of the parallel orders.
fn behind_a_lock(before: [u64; 2], wins: usize, canonical: bool) -> Vec<u64> {
    use sunder_trace::slot::Sync;
    let access = |value: u64| Slot::new(value, Key::new(tag::WRITE, 8, 16));
    let (_folder, path) = recorded(|recorder, both| {
        for (number, &count) in before.iter().enumerate() {
            for i in 0..count {
                // SAFETY: both buffers are attached and used by this thread alone.
                unsafe { recorder.push(both[number], access(1000 * number as u64 + i)) };
            }
        }
        for number in [wins, 1 - wins] {
            // SAFETY: as above.
            unsafe {
                recorder.push_after(both[number], Slot::sync(Sync::MutexLock, 64));
                for i in before[number]..before[number] + 100 {
                    recorder.push(both[number], access(1000 * number as u64 + i));
                }
                recorder.push_before(both[number], Slot::sync(Sync::MutexUnlock, 64));
            }
        }
    });
    let trace = Trace::open(&path).unwrap();
    let filter = Filter {
        kinds: Kinds::ACCESSES,
        ..Filter::default()
    };
    let events = match canonical {
        true => trace.events_in_canonical_order(filter),
        false => trace.events_in_parallel(filter),
    };
    addresses(events)
}

#[test]
fn in_the_canonical_order_a_lock_goes_to_who_asks_first() {
    // In their own time, thread 0 asks after 10 accesses and thread 1 after 20. So thread 1 makes its
    // 20 while thread 0 makes 20 too, and then waits for the other 90 of thread 0.
    let last_of_0 = |all: &[u64]| all.iter().rposition(|&a| a < 1000);
    let recorded_as = |wins| behind_a_lock([10, 20], wins, true);
    let order = recorded_as(0);
    assert_eq!(order.len(), 230);
    assert_eq!(last_of_0(&order), Some(129));
    assert!(order[130..].iter().all(|&a| a >= 1020), "{order:?}");
    assert_eq!(recorded_as(1), order);
    // The parallel order keeps who had it.
    assert_eq!(last_of_0(&behind_a_lock([10, 20], 0, false)), Some(129));
    assert_eq!(last_of_0(&behind_a_lock([10, 20], 1, false)), Some(229));
    // The other thread asks first.
    assert_eq!(last_of_0(&behind_a_lock([20, 10], 0, true)), Some(229));
}

#[test]
fn a_wait_on_a_condition_variable_lets_its_mutex_go_and_ends_with_a_signal() {
    use sunder_trace::slot::Sync;
    let access = |value: u64| Slot::new(value, Key::new(tag::WRITE, 8, 16));
    let (_folder, path) = recorded(|recorder, [first, second]| {
        // SAFETY: both buffers are attached and used by this thread alone.
        unsafe {
            recorder.push_after(first, Slot::sync(Sync::MutexLock, 64));
            recorder.push(first, access(0));
            recorder.push_before(first, Slot::sync(Sync::MutexUnlock, 64));
            recorder.push_before(first, Slot::sync(Sync::ConditionEnter, 128));
            recorder.push_after(second, Slot::sync(Sync::MutexLock, 64));
            for i in 0..100 {
                recorder.push(second, access(1000 + i));
            }
            recorder.push_before(second, Slot::sync(Sync::ConditionSignal, 128));
            recorder.push(second, access(1100));
            recorder.push_before(second, Slot::sync(Sync::MutexUnlock, 64));
            // What the second thread does outside of the mutex, and further signals, are not waited
            // for.
            for i in 0..100 {
                recorder.push(second, access(1101 + i));
            }
            recorder.push_before(second, Slot::sync(Sync::ConditionSignal, 128));
            recorder.push_after(first, Slot::sync(Sync::ConditionLeave, 128));
            recorder.push_after(first, Slot::sync(Sync::MutexLock, 64));
            recorder.push(first, access(1));
        }
    });
    let trace = Trace::open(&path).unwrap();
    let filter = || Filter {
        kinds: Kinds::ACCESSES,
        ..Filter::default()
    };
    for events in [
        trace.events_in_parallel(filter()),
        trace.events_in_canonical_order(filter()),
    ] {
        let order = addresses(events);
        let at = |wanted: u64| order.iter().position(|&a| a == wanted);
        assert_eq!(order.len(), 203);
        // At once when the mutex is free: with the first access outside of it, or the next.
        assert!(
            at(1).is_some_and(|at| (102..=103).contains(&at)),
            "{order:?}"
        );
    }
}

#[test]
fn a_thread_starts_after_its_creation_whatever_the_ticks_say() {
    use sunder_trace::slot::Sync;
    let places = [Cursor::default(), Cursor::default()];
    // SAFETY: the memory outlives the record.
    let (_folder, path) = recorded_by(|recorder| unsafe {
        let first = recorder.attach(&raw const places[0], 0, 0).unwrap();
        let reserved = recorder.reserve();
        // The creation gets a late tick if its recorder wrote it between two stamps far apart.
        let second = recorder.attach(&raw const places[1], 1, reserved).unwrap();
        assert_eq!((first.thread(), second.thread()), (1, 2));
        recorder.push_before(first, Slot::sync(Sync::ThreadCreate, reserved.into()));
        recorder.detach(second);
        recorder.detach(first);
    });
    let trace = Trace::open(&path).unwrap();
    let place = |events: &[sunder_trace::Event], wanted: fn(&sunder_trace::Event) -> bool| {
        events.iter().position(wanted).expect("an event")
    };
    for events in [
        trace.events_in_parallel(Filter::default()),
        trace.events_in_canonical_order(Filter::default()),
    ] {
        let events: Vec<_> = events.collect();
        let created = place(&events, |e| matches!(e.what, What::Sync { .. }));
        let started = place(&events, |e| {
            e.thread == 2 && matches!(e.what, What::ThreadStart { .. })
        });
        assert!(created < started, "{events:#?}");
    }
}
