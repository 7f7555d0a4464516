//! Compares confined replays with replays of all accesses: both must count the same, whatever
//! is moved and counted.

use super::*;
use crate::options::Simulate;
use crate::recorded::{GLOBALS, SIZES, THREADS, deed, record};
use crate::simulate::replay::Replay;
use proptest::prelude::*;
use std::sync::Arc;
use sunder_access::{Address, Span};
use sunder_coherence::{Config, Protocol};
use sunder_pipeline::Shape;
use sunder_placement::Policy;

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
        let machine = Machine::of(&options, &trace).unwrap();
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
