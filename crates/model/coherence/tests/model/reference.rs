//! The simulator compared with a model that is slow and simple: the model keeps the whole trace
//! and a state for every pair of node and granule, and classifies misses by searching the trace
//! for what the definition names.

use crate::slow::{Slow, Step};
use proptest::prelude::*;
use sunder_coherence::{
    Address, CacheSize, Caches, Config, Counts, Kind, Miss, Observer, Protocol, Simulator,
};

/// Records every miss, tagged with the number of its access.
#[derive(Default)]
struct Misses(Vec<Miss<u32>>);

impl Observer for Misses {
    type Tag = u32;

    fn miss(&mut self, miss: &Miss<u32>) {
        self.0.push(*miss);
    }
}

fn protocols() -> impl Strategy<Value = Protocol> {
    prop_oneof![
        Just(Protocol::Msi),
        Just(Protocol::Mesi),
        Just(Protocol::Mesif)
    ]
}

/// Caches of one to six granules, so that short traces cause replacements.
fn caches(granule: u64) -> impl Strategy<Value = Caches> {
    let size = move |granules: u64, ways: u32| CacheSize {
        bytes: granules * granule,
        ways,
    };
    prop_oneof![
        2 => Just(Caches::Infinite),
        1 => (1u64..=3, 1u32..=2).prop_map(move |(sets, ways)| Caches::Private {
            l1: size(sets * u64::from(ways), ways),
            l2: None,
        }),
        2 => (1u64..=2, 1u32..=2, 1u64..=3, 2u32..=3)
            .prop_map(move |(sets, ways, sets2, ways2)| {
                let first = sets * u64::from(ways);
                let second = sets2 * u64::from(ways2);
                Caches::Private {
                    l1: size(first.min(second), if first <= second { ways } else { ways2 }),
                    l2: Some(size(second, ways2)),
                }
            })
            .prop_filter("whole sets", move |caches| {
                Config { caches: *caches, ..Config::new(granule, 1) }.check().is_ok()
            }),
    ]
}

/// Granules, words and nodes: lines with byte masks, lines with coarse words, granules too
/// large for masks, and more nodes than one word of a set holds.
fn machines() -> impl Strategy<Value = Config> {
    let shape = prop_oneof![
        4 => (Just(64u64), Just(1u32), 1u32..=5),
        1 => (Just(8u64), Just(1u32), 2u32..=3),
        1 => (Just(64u64), Just(8u32), 2u32..=4),
        2 => (Just(128u64), Just(1u32), 2u32..=4),
        1 => (Just(1024u64), Just(8u32), 2u32..=4),
        1 => (Just(64u64), Just(1u32), 70u32..=80),
        1 => (Just(128u64), Just(1u32), 70u32..=80),
    ];
    shape
        .prop_flat_map(|(granule, word, nodes)| {
            (Just((granule, word, nodes)), protocols(), caches(granule))
        })
        .prop_map(|((granule, word, nodes), protocol, caches)| Config {
            granule,
            nodes,
            protocol,
            caches,
            word,
        })
}

fn kinds() -> impl Strategy<Value = Kind> {
    prop_oneof![
        3 => Just(Kind::Read),
        2 => Just(Kind::Write),
        1 => Just(Kind::Update),
        1 => Just(Kind::Atomic),
    ]
}

/// Accesses to the first few granules; a quarter of them are near a border.
fn steps(config: Config) -> impl Strategy<Value = Vec<Step>> {
    let granule = config.granule;
    let offsets = prop_oneof![
        4 => (0u64..6, 0u64..4).prop_map(move |(line, word)| line * granule + word * 4),
        1 => 0u64..6 * granule,
        1 => (1u64..6).prop_map(move |line| line * granule - 2),
    ];
    let widths = prop_oneof![4 => Just(4u32), 2 => Just(1), 1 => 1u32..=64, 1 => Just(300)];
    let step = (0..config.nodes, offsets, widths, kinds());
    let few_nodes = config.nodes <= 8;
    prop::collection::vec(step, if few_nodes { 0..160 } else { 100..400 }).prop_map(|steps| {
        let steps = steps.into_iter();
        let step = |(node, address, width, kind)| Step {
            node,
            address: 0x10_0000 + address,
            width,
            kind,
        };
        steps.map(step).collect()
    })
}

fn compare(config: Config, steps: &[Step], check_each: bool) {
    let mut simulator =
        Simulator::with_observer(config, Misses::default()).expect("machines are possible");
    for (number, step) in steps.iter().enumerate() {
        simulator
            .access(
                step.node,
                Address(step.address),
                step.width,
                step.kind,
                number as u32,
            )
            .expect("steps are possible");
        if check_each {
            simulator.check_invariants();
        }
    }
    let result = simulator.finish();
    let expected = Slow::run(config, steps);

    assert_eq!(result.nodes(), expected.nodes);
    let mut lines: Vec<_> = result.lines().collect();
    lines.sort_by_key(|line| line.line);
    let found: Vec<_> = lines
        .iter()
        .map(|line| (line.line.0, line.nodes, line.counts))
        .collect();
    assert_eq!(found, expected.lines);

    let totals = result.totals();
    let mut from_lines = Counts::default();
    for line in &lines {
        from_lines += line.counts;
    }
    from_lines.first_level = totals.first_level;
    assert_eq!(from_lines, totals);
    assert_eq!(
        totals.hits() + totals.upgrades + totals.misses(),
        totals.references
    );
    assert_eq!(
        totals.hits(),
        expected.hits,
        "hits are what is left of the references"
    );

    let mut misses = result.into_observer().0;
    misses.sort_by_key(|miss| (miss.tag, miss.line));
    let reported: Vec<_> = misses
        .iter()
        .map(|m| (m.tag, m.line.0, m.node, m.kind, m.write, m.source, m.end))
        .collect();
    assert_eq!(reported, expected.misses);
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 200,
        max_shrink_iters: 2000,
        ..ProptestConfig::default()
    })]

    #[test]
    fn the_simulator_agrees_with_the_slow_model(
        (config, steps) in machines().prop_flat_map(|c| (Just(c), steps(c)))
    ) {
        compare(config, &steps, config.nodes <= 8);
    }
}
