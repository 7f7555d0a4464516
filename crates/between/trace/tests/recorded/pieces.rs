//! Pieces against single events: whatever was recorded, both give the same events in the same
//! order.

use proptest::prelude::*;
use std::path::{Path, PathBuf};
use sunder_recorder::{Cursor, Recorder, Start};
use sunder_trace::meta::{Reason, Via};
use sunder_trace::read::{Event, Filter, Kinds, Piece, Pieces, Trace};
use sunder_trace::slot::{Key, Slot, Sync, tag};

const THREADS: usize = 4;

/// One step of a thread.
#[derive(Clone, Debug)]
enum Deed {
    /// So many accesses; the second number chooses kind and stride.
    Accesses(usize, u64),
    /// An action that orders threads, on one of few objects.
    Sync(Sync, u64),
    Allocate(u64),
    Free(u64),
    Mark,
}

fn deed() -> impl Strategy<Value = Deed> {
    let many = prop_oneof![6 => 1..40usize, 2 => 900..1100usize, 1 => 30_000..40_000usize];
    let sync = prop::sample::select(Sync::ALL.to_vec());
    prop_oneof![
        6 => (many, any::<u64>()).prop_map(|(n, how)| Deed::Accesses(n, how)),
        4 => (sync, 0..3u64).prop_map(|(kind, object)| Deed::Sync(kind, object * 64)),
        1 => (0..4u64).prop_map(Deed::Allocate),
        1 => (0..4u64).prop_map(Deed::Free),
        1 => Just(Deed::Mark),
    ]
}

fn acquires(kind: Sync) -> bool {
    matches!(
        kind,
        Sync::MutexLock
            | Sync::ReadLock
            | Sync::WriteLock
            | Sync::ConditionWoken
            | Sync::ConditionLeave
            | Sync::BarrierLeft
            | Sync::ThreadJoin
    )
}

/// A trace of threads that did `deeds`, and then ended if `ends`.
fn record(deeds: &[(usize, Deed)], ends: bool) -> (tempfile::TempDir, PathBuf) {
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
    let places: [Cursor; THREADS] = Default::default();
    // SAFETY: the memory outlives the record, and one thread uses all buffers.
    unsafe {
        let buffers: Vec<_> = places
            .iter()
            .enumerate()
            .map(|(i, place)| {
                let creator = u32::from(i > 0);
                recorder.attach(&raw const *place, creator, 0).unwrap()
            })
            .collect();
        for (thread, deed) in deeds {
            let buffer = buffers[*thread];
            match *deed {
                Deed::Accesses(count, how) => {
                    let base = (how >> 8) % 50_000;
                    for i in 0..count as u64 {
                        let noise = if how & 64 == 0 { 0 } else { i * i % 7 };
                        let address = base + i * (how >> 4 & 15) + noise;
                        let of = 1 + ((how ^ i) % 6) as u8;
                        let key = Key::new(of, 1 << (i % 4), 100 + i % (1 + how % 5));
                        recorder.push(buffer, Slot::new(address, key));
                    }
                }
                Deed::Sync(kind, object) if acquires(kind) => {
                    recorder.push_after(buffer, Slot::sync(kind, object));
                }
                Deed::Sync(kind, object) => recorder.push_before(buffer, Slot::sync(kind, object)),
                Deed::Allocate(at) => {
                    recorder.push(buffer, Slot::new(24, Key::new(tag::SIZE, 0, 7)));
                    let key = Key::new(tag::ALLOCATE, 0, 0);
                    recorder.push_after(buffer, Slot::new(at * 4096, key));
                }
                Deed::Free(at) => {
                    let key = Key::new(tag::FREE, 0, 0);
                    recorder.push_before(buffer, Slot::new(at * 4096, key));
                }
                Deed::Mark => recorder.push(buffer, Slot::new(1, Key::new(tag::MARK, 0, 0))),
            }
        }
        for (i, buffer) in buffers.into_iter().enumerate() {
            if ends || i % 2 == 0 {
                recorder.detach(buffer);
            }
        }
    }
    recorder.finish(Reason::Exit);
    (folder, path)
}

fn flat(mut pieces: Pieces<'_>) -> (Vec<Event>, u64) {
    let mut all = Vec::new();
    while let Some(piece) = pieces.next() {
        match piece {
            Piece::Accesses(turns) => {
                assert!(turns.rounds() > 0 && turns.lanes() > 0);
                all.extend(turns.events());
            }
            Piece::Event(event) => all.push(event),
        }
    }
    (all, pieces.damaged_blocks())
}

/// The first index at which the two differ, with the events there.
fn first_difference(a: &[Event], b: &[Event]) -> Option<(usize, Option<Event>, Option<Event>)> {
    let place = (0..a.len().max(b.len())).find(|&i| a.get(i) != b.get(i))?;
    Some((place, a.get(place).copied(), b.get(place).copied()))
}

fn check(path: &Path) {
    let Ok(trace) = Trace::open(path) else {
        return;
    };
    let none = Kinds::NONE;
    for kinds in [
        none,
        Kinds::HEAP,
        Kinds::HEAP.with(Kinds::THREADS),
        Kinds::ALL,
    ] {
        let filter = || Filter {
            kinds: Kinds::ACCESSES.with(kinds),
            ..Filter::default()
        };
        let mut events = trace.events(filter());
        let slow: Vec<Event> = events.by_ref().collect();
        let (fast, damaged) = flat(trace.pieces(kinds));
        assert_eq!(first_difference(&fast, &slow), None, "as recorded");
        assert_eq!(damaged, events.damaged_blocks());
        for (order, mut events, pieces) in [
            (
                "in parallel",
                trace.events_in_parallel(filter()),
                trace.pieces_in_parallel(kinds),
            ),
            (
                "canonical",
                trace.events_in_canonical_order(filter()),
                trace.pieces_in_canonical_order(kinds),
            ),
        ] {
            // Whatever the order is, every event is there once.
            let count = slow.len();
            let slow: Vec<Event> = events.by_ref().collect();
            assert_eq!(slow.len(), count, "{order}");
            let (fast, damaged) = flat(pieces);
            assert_eq!(first_difference(&fast, &slow), None, "{order}");
            assert_eq!(damaged, events.damaged_blocks());
        }
    }
}

/// Found by the test below: of a thread's end nothing tells beforehand if the rest of its slots are not
/// wanted.
#[test]
fn threads_that_end_in_the_middle_of_a_round_let_others_in_at_once() {
    let deeds = [
        (1, Deed::Sync(Sync::MutexLock, 128)),
        (3, Deed::Sync(Sync::ReadLock, 128)),
        (1, Deed::Accesses(2, 0)),
        (1, Deed::Mark),
        (2, Deed::Accesses(38_242, 17_037_968_692_689_704_729)),
        (3, Deed::Free(2)),
    ];
    let (_folder, path) = record(&deeds, false);
    let whole = std::fs::read(&path).unwrap();
    for at in (0..whole.len()).step_by(whole.len() / 24) {
        let mut bytes = whole.clone();
        bytes[at] ^= 90;
        std::fs::write(&path, bytes).unwrap();
        check(&path);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn pieces_equal_events_read_one_by_one(
        deeds in prop::collection::vec((0..THREADS, deed()), 0..60),
        ends in any::<bool>(),
        damage in prop::option::of((any::<prop::sample::Index>(), 1..=255u8)),
    ) {
        let (_folder, path) = record(&deeds, ends);
        check(&path);
        if let Some((at, flip)) = damage {
            let mut bytes = std::fs::read(&path).unwrap();
            let at = at.index(bytes.len());
            bytes[at] ^= flip;
            std::fs::write(&path, bytes).unwrap();
            check(&path);
        }
    }
}
