//! Compares confined replays with replays of all accesses: both must count the same, whatever
//! is moved and counted.

use super::*;
use crate::options::Simulate;
use crate::simulate::replay::Replay;
use proptest::prelude::*;
use std::path::PathBuf;
use std::sync::Arc;
use sunder_access::{Address, Span};
use sunder_coherence::{Config, Protocol};
use sunder_pipeline::Shape;
use sunder_placement::Policy;
use sunder_recorder::{Cursor, Recorder, Start};
use sunder_trace::meta::{Reason, Via};
use sunder_trace::slot::{Key, Slot, tag};

const THREADS: usize = 3;

/// Blocks have one of these sizes, and come from one of the call stacks 1 to 3.
const SIZES: [u64; 4] = [8, 40, 300, 5000];

/// Where blocks and variables begin.
const HEAP: u64 = 0x10_0000;
const GLOBALS: u64 = 0x5_0000;

#[derive(Clone, Debug)]
enum Deed {
    /// An access at an offset into the heap, or into the variables.
    Heap(u64, u8, u8),
    Global(u64, u8, u8),
    Allocate(u64, usize, u64),
    Free(usize),
}

fn deed() -> impl Strategy<Value = Deed> {
    let width = prop::sample::select(vec![1u8, 4, 8, 8, 16, 64]);
    let kind = 1..=4u8;
    prop_oneof![
        10 => (0..12_000u64, width.clone(), kind.clone()).prop_map(|(a, w, k)| Deed::Heap(a, w, k)),
        10 => (0..1500u64, width, kind).prop_map(|(a, w, k)| Deed::Global(a, w, k)),
        3 => (0..700u64, 0..SIZES.len(), 1..4u64).prop_map(|(a, s, c)| Deed::Allocate(a * 16, s, c)),
        1 => (0..40usize).prop_map(Deed::Free),
    ]
}

fn record(deeds: &[(usize, Deed)]) -> (tempfile::TempDir, PathBuf) {
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
    let mut blocks: Vec<(u64, u64)> = Vec::new();
    // SAFETY: `places` outlives the record, and one thread uses all buffers.
    unsafe {
        let buffers: Vec<_> = places
            .iter()
            .map(|place| recorder.attach(&raw const *place, 0).unwrap())
            .collect();
        for (thread, deed) in deeds {
            let buffer = buffers[*thread];
            let access = |at, width, kind| Slot::new(at, Key::new(kind, width, 0x1000));
            match *deed {
                Deed::Heap(at, width, kind) => {
                    recorder.push(buffer, access(HEAP + at, width, kind))
                }
                Deed::Global(at, width, kind) => {
                    recorder.push(buffer, access(GLOBALS + at, width, kind));
                }
                Deed::Allocate(at, size, call) => {
                    // A block is freed before its memory is allocated again.
                    let (at, size) = (HEAP + at, SIZES[size]);
                    let (over, rest) = blocks
                        .into_iter()
                        .partition(|&(start, len)| start < at + size && at < start + len);
                    blocks = rest;
                    for (start, _) in over {
                        recorder.push_before(buffer, Slot::new(start, Key::new(tag::FREE, 0, 0)));
                    }
                    blocks.push((at, size));
                    recorder.push(buffer, Slot::new(size, Key::new(tag::SIZE, 1, call)));
                    recorder.push_after(buffer, Slot::new(at, Key::new(tag::ALLOCATE, 0, 0)));
                }
                Deed::Free(which) => {
                    if !blocks.is_empty() {
                        let (start, _) = blocks.swap_remove(which % blocks.len());
                        recorder.push_before(buffer, Slot::new(start, Key::new(tag::FREE, 0, 0)));
                    }
                }
            }
        }
        for buffer in buffers {
            recorder.detach(buffer);
        }
    }
    recorder.finish(Reason::Exit);
    (folder, path)
}

/// What a layout moves and counts.
#[derive(Clone, Debug)]
struct Asks {
    policy: Option<Policy>,
    moved: Vec<(u32, usize)>,
    counted: Vec<(u32, usize)>,
    global: Option<(u64, u64)>,
    lead: u64,
    granule: u64,
}

fn asks() -> impl Strategy<Value = Asks> {
    let keys = || prop::collection::vec((1..4u32, 0..SIZES.len()), 0..4);
    (
        prop::option::of(prop::sample::select(Policy::ALL.to_vec())),
        keys(),
        keys(),
        prop::option::of((0..1400u64, 1..80u64)),
        (0..4u64).prop_map(|l| l * 16),
        prop::sample::select(vec![32, 64, 128, 256]),
    )
        .prop_map(|(policy, moved, counted, global, lead, granule)| Asks {
            policy,
            moved,
            counted,
            global,
            lead,
            granule,
        })
}

fn layout(asks: &Asks) -> Layout {
    let mut layout = Layout {
        policy: asks.policy,
        ..Layout::default()
    };
    let shape = Arc::new(Shape::aligned(64).with_lead(asks.lead));
    let key = |&(stack, size): &(u32, usize)| (stack, SIZES[size]);
    for moved in &asks.moved {
        layout.blocks.insert(key(moved), Arc::clone(&shape));
    }
    for (subject, counted) in (1..).zip(&asks.counted) {
        layout.subjects.insert(key(counted), subject);
    }
    if let Some((at, len)) = asks.global {
        let span = Span::new(Address(GLOBALS + at), len);
        layout.static_subjects.push((span, 9));
        if asks.lead > 0 {
            layout.statics.push((span, shape));
        }
    }
    layout
}

/// The counts of a replay of all accesses.
fn whole(trace: &Trace, machine: &Machine, wanted: &Wanted) -> Counted {
    let counts = BySubject::default();
    let mut replay = Replay::new(machine, wanted.config, &wanted.layout, counts).unwrap();
    each_of(trace, machine, true, None, |steps| replay.feed(steps)).unwrap();
    Counted::of(replay.finish())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn replays_of_the_lines_concerned_count_what_those_of_all_do(
        deeds in prop::collection::vec((0..THREADS, deed()), 1..600),
        all in prop::collection::vec(asks(), 1..5),
    ) {
        let (_folder, path) = record(&deeds);
        let options = Simulate::new(path.clone());
        let trace = Trace::open(&path).unwrap();
        let machine = Machine::new(&options, trace.threads()).unwrap();
        let base = whole(&trace, &machine, &Wanted {
            config: machine.config,
            layout: Layout::default(),
        });
        let wanted: Vec<Wanted> = all.iter().map(|asks| {
            let layout = layout(asks);
            // Other line sizes only if nothing moves, as in `what-if`.
            let granule = if layout.is_actual() { asks.granule } else { 64 };
            let config = Config {
                protocol: Protocol::Mesi,
                ..Config::new(granule, machine.config.nodes)
            };
            Wanted { config, layout }
        }).collect();
        let base = Base { misses: base.totals, granules: 1000 };
        let quick = replay_all(&trace, &machine, &wanted, base).unwrap();
        for ((wanted, quick), asks) in wanted.iter().zip(&quick).zip(&all) {
            let slow = whole(&trace, &machine, wanted);
            if wanted.config.granule == 64 {
                prop_assert_eq!(slow.totals, quick.totals, "{:?}", asks);
            }
            for subject in 1..10 {
                prop_assert_eq!(slow.of_subject(subject), quick.of_subject(subject), "{:?}", asks);
            }
            if !wanted.layout.is_actual() {
                prop_assert_eq!(slow.placed.map(|p| p.1), quick.placed.map(|p| p.1));
                prop_assert_eq!(slow.placed.map(|p| p.0), quick.placed.map(|p| p.0));
            }
        }
    }
}
