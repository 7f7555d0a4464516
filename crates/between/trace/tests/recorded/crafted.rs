//! Traces whose checksums are right and whose numbers are absurd: each is refused with a sentence
//! that says which file, where, and what is wrong, or read within its bounds.

use std::collections::HashSet;
use std::path::Path;
use sunder_trace::block::{BlockHeader, Kind};
use sunder_trace::craft::{Crafted, columns, events, repeated};
use sunder_trace::read::{Filter, Kinds, Piece, Trace};
use sunder_trace::slot::{Key, Sync, tag};
use sunder_trace::{SLOTS, TraceError};

const READ: Key = Key::new(tag::READ, 8, 0x400);

fn open(crafted: &Crafted) -> (tempfile::NamedTempFile, Result<Trace, TraceError>) {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), crafted.bytes()).unwrap();
    let trace = Trace::open(file.path());
    (file, trace)
}

/// Panics unless the file is refused in a sentence with its path, the position and these words.
fn refused(crafted: &Crafted, at: u64, words: &str) {
    let (file, trace) = open(crafted);
    let error = trace.expect_err(words).to_string();
    let path: &Path = file.path();
    assert!(error.contains(&path.display().to_string()), "{error}");
    assert!(error.contains(&format!("at byte {at},")), "{error}");
    assert!(error.contains(words), "{error}");
}

fn count(trace: &Trace) -> usize {
    trace.events(Filter::default()).count()
}

#[test]
fn a_block_of_repeated_events_is_what_it_says() {
    let payload = repeated(READ, 0x1000, 64);
    let mut crafted = Crafted::new();
    crafted.block(events(1, 5, payload.len(), (10, 20)), &payload);
    let (_file, trace) = open(&crafted);
    let trace = trace.unwrap();
    assert_eq!((count(&trace), trace.verify()), (5, 0));
}

#[test]
fn a_block_has_no_more_events_than_a_recorder_puts_into_one() {
    let payload = repeated(READ, 0x1000, 64);
    let mut crafted = Crafted::new();
    let at = crafted.next();
    crafted.block(events(1, 0x7fff_ffff, payload.len(), (10, 20)), &payload);
    refused(&crafted, at, "2147483647 events");
    let mut crafted = Crafted::new();
    let most = SLOTS as u32;
    crafted.block(events(1, most, payload.len(), (10, 20)), &payload);
    let (_file, trace) = open(&crafted);
    assert_eq!(count(&trace.unwrap()), SLOTS);
}

#[test]
fn a_block_of_a_billion_entries_is_refused_before_it_is_read() {
    for (kind, words) in [
        (Kind::Modules, "1000000000 loaded files"),
        (Kind::Stacks, "1000000000 call stacks"),
    ] {
        let mut crafted = Crafted::new();
        let at = crafted.next();
        crafted.packed(kind, 1_000_000_000, &vec![0; 1 << 20]);
        refused(&crafted, at, words);
    }
}

#[test]
fn threads_have_numbers_that_a_kernel_gives() {
    let payload = repeated(READ, 0x1000, 64);
    let with = |thread, tid| {
        let mut crafted = Crafted::new();
        let header = BlockHeader {
            tid,
            ..events(thread, 5, payload.len(), (10, 20))
        };
        let at = crafted.next();
        crafted.block(header, &payload);
        (crafted, at)
    };
    let (crafted, at) = with(0, 7);
    refused(&crafted, at, "number 0");
    let (crafted, at) = with(1, u32::MAX);
    refused(&crafted, at, "4294967295");
    // Any index may be there: earlier threads may be lost.
    let (crafted, _) = with(0xffff_fff0, 7);
    let (_file, trace) = open(&crafted);
    assert_eq!(count(&trace.unwrap()), 5);
}

/// The numbers of 1024 threads fill the bits above that of the kernel.
#[test]
fn threads_with_one_number_of_the_kernel_are_told_apart_however_many_they_are() {
    let payload = repeated(READ, 0x1000, 64);
    let mut crafted = Crafted::new();
    let most = (1 << 22) - 1;
    for thread in 1..=3000 {
        let tid = if thread % 3 == 0 { most } else { 100 };
        let header = BlockHeader {
            tid,
            ..events(thread, 1, payload.len(), (10, 20))
        };
        crafted.block(header, &payload);
    }
    let (_file, trace) = open(&crafted);
    let trace = trace.unwrap();
    let ids: HashSet<_> = trace.threads().iter().map(|thread| thread.id).collect();
    assert_eq!((trace.threads().len(), ids.len()), (3000, 3000));
}

/// Some kilobytes that unpack to a hundred times the limit of their memory are not unpacked.
#[test]
fn what_is_kept_in_memory_is_bounded_by_the_files_size() {
    let zeroes = vec![0; 4 << 20];
    let mut crafted = Crafted::new();
    for _ in 0..100 {
        crafted.packed(Kind::Stacks, 1, &zeroes);
    }
    let (_file, trace) = open(&crafted);
    let error = trace.expect_err("too much").to_string();
    assert!(error.contains("bytes unpacked, and the file"), "{error}");

    let mut crafted = Crafted::new();
    let payload = columns([&[], &[], &[], &[], &[]]);
    let header = |thread| BlockHeader {
        unpacked: 4 << 20,
        compressed: true,
        ..events(thread, 1, payload.len(), (10, 20))
    };
    for thread in 1..200 {
        crafted.block(header(thread), &payload);
    }
    let (_file, trace) = open(&crafted);
    let error = trace.expect_err("too much").to_string();
    assert!(error.contains("bytes of memory to read"), "{error}");
}

#[test]
fn a_threads_time_never_goes_back() {
    let payload = repeated(READ, 0x1000, 64);
    let mut crafted = Crafted::new();
    for (sequence, times) in [(10, 1000), (500, 2000), (0, 100), (50, 3000)]
        .into_iter()
        .enumerate()
    {
        let header = BlockHeader {
            sequence: sequence as u32,
            ..events(1, 100, payload.len(), times)
        };
        crafted.block(header, &payload);
    }
    let other = repeated(READ, 0x9000, 64);
    crafted.block(events(2, 300, other.len(), (5, 4000)), &other);
    let (_file, trace) = open(&crafted);
    let trace = trace.unwrap();
    assert_eq!(trace.summary().early_blocks, 3);
    assert!(!trace.summary().is_complete());
    let ticks: Vec<u64> = trace.events(Filter::default()).map(|e| e.ticks).collect();
    assert_eq!(ticks.len(), 700);
    assert!(ticks.is_sorted());
    // The same for many events at once.
    let mut pieces = trace.pieces(Kinds::NONE);
    let (mut seen, mut last) = (0, 0);
    while let Some(piece) = pieces.next() {
        let Piece::Accesses(turns) = piece else {
            continue;
        };
        for event in turns.events() {
            assert!(last <= event.ticks);
            (last, seen) = (event.ticks, seen + 1);
        }
    }
    assert_eq!(seen, 700);
}

/// Both take about a second; with a look at all threads for each event, more than a minute.
#[test]
fn tens_of_thousands_of_threads_are_read_in_the_parallel_order() {
    let began = std::time::Instant::now();
    let mut waiting = Crafted::new();
    let mut accessing = Crafted::new();
    for thread in 1..=30_000 {
        let code = [Sync::MutexLock, Sync::MutexUnlock, Sync::BarrierLeft][thread as usize % 3];
        let payload = repeated(Key::new(tag::SYNC, code as u8, 0), 0x1000, 0);
        let times = (thread.into(), u64::from(thread) + 50);
        waiting.block(events(thread, 20, payload.len(), times), &payload);
        let payload = repeated(READ, 0x1000, 0);
        // One access each before the end of a thread.
        let times = (10, 20);
        accessing.block(events(thread, 2, payload.len(), times), &payload);
    }
    for (crafted, wanted) in [(&waiting, 600_000), (&accessing, 60_000)] {
        let (_file, trace) = open(crafted);
        let trace = trace.unwrap();
        let mut found = 0;
        let mut pieces = trace.pieces_in_parallel(Kinds::ALL);
        while let Some(piece) = pieces.next() {
            found += match piece {
                Piece::Accesses(turns) => turns.lanes() * turns.rounds(),
                Piece::Event(_) => 1,
            };
        }
        assert_eq!(found, wanted);
    }
    let took = began.elapsed();
    assert!(took.as_secs() < 30, "{took:?}");
}

#[test]
fn a_guard_ends_the_reading_in_every_order() {
    let payload = repeated(READ, 0x1000, 64);
    let mut crafted = Crafted::new();
    for sequence in 0..4 {
        let from = u64::from(sequence) * 100;
        let header = BlockHeader {
            sequence,
            ..events(1, 100, payload.len(), (from, from + 50))
        };
        crafted.block(header, &payload);
    }
    let read: [fn(&Trace); 4] = [
        |trace| {
            count(trace);
        },
        |trace| {
            trace.events_in_parallel(Filter::default()).count();
        },
        |trace| {
            let mut pieces = trace.pieces(Kinds::ALL);
            while pieces.next().is_some() {}
        },
        |trace| {
            let mut pieces = trace.pieces_in_parallel(Kinds::ALL);
            while pieces.next().is_some() {}
        },
    ];
    for read in read {
        let (_file, trace) = open(&crafted);
        let mut trace = trace.unwrap();
        assert_eq!(trace.stopped(), None);
        let asked = std::sync::atomic::AtomicU32::new(0);
        trace.set_guard(Box::new(move || {
            let before = asked.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            (before >= 2).then(|| "enough".to_owned())
        }));
        read(&trace);
        assert_eq!(trace.stopped(), Some("enough"));
    }
}
