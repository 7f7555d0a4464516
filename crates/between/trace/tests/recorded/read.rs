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
            let buffer = recorder.attach(&raw const place, 0).unwrap();
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

/// A trace of two threads, filled by `fill`; the recorder's functions record acquires and releases.
fn recorded(fill: impl Fn(&Recorder, [&Buffer; 2])) -> (tempfile::TempDir, PathBuf) {
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
    let places = [Cursor::default(), Cursor::default()];
    // SAFETY: the memory outlives the record.
    unsafe {
        let buffers = [0, 1].map(|i| recorder.attach(&raw const places[i], 0).unwrap());
        fill(&recorder, buffers);
        for buffer in buffers {
            recorder.detach(buffer);
        }
    }
    recorder.finish(Reason::Exit);
    (folder, path)
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
    let order: Vec<u64> = trace
        .events_in_parallel(Filter {
            kinds: Kinds::ACCESSES,
            ..Filter::default()
        })
        .filter_map(|event| match event.what {
            What::Access { access, .. } => Some(access.address.0),
            _ => None,
        })
        .collect();
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
    let order: Vec<u64> = trace
        .events_in_parallel(Filter {
            kinds: Kinds::ACCESSES,
            ..Filter::default()
        })
        .filter_map(|event| match event.what {
            What::Access { access, .. } => Some(access.address.0),
            _ => None,
        })
        .collect();
    let wanted: Vec<u64> = (0..100).chain(1000..=1100).chain([100]).collect();
    assert_eq!(order, wanted);
}
