//! The counts of the protocols, on traces checked by hand; the page-based machine; impossible
//! machines.

use sunder_coherence::{
    Address, CacheSize, Caches, Config, Counts, Error, Invalidation, Kind, Observer, Protocol,
    Simulator, Upgrade,
};

fn counts(config: Config, trace: &[(u32, Kind, u64)]) -> Counts {
    let mut simulator = Simulator::new(config).expect("possible");
    for &(node, kind, address) in trace {
        simulator
            .access(node, Address(address), 8, kind, ())
            .expect("possible");
        simulator.check_invariants();
    }
    simulator.finish().totals()
}

const fn with(protocol: Protocol) -> Config {
    Config {
        protocol,
        ..Config::cache_line(4)
    }
}

#[test]
fn a_sole_clean_copy_is_written_in_silence_but_not_under_msi() {
    let trace = [(0, Kind::Read, 0), (0, Kind::Write, 0)];
    assert_eq!(counts(with(Protocol::Mesi), &trace).upgrades, 0);
    assert_eq!(counts(with(Protocol::Mesi), &trace).hits(), 1);
    assert_eq!(counts(with(Protocol::Msi), &trace).upgrades, 1);
    assert_eq!(counts(with(Protocol::Msi), &trace).hits(), 0);
}

#[test]
fn dirty_data_are_written_back_on_a_read_and_not_on_a_write() {
    // Node 0 writes. Node 1 reads: a dirty transfer and a write-back. Node 2 writes: both
    // copies, which are clean now, are invalidated. Node 3 writes: a dirty transfer without
    // write-back.
    let trace = [
        (0, Kind::Write, 0),
        (1, Kind::Read, 0),
        (2, Kind::Write, 0),
        (3, Kind::Atomic, 0),
    ];
    let found = counts(with(Protocol::Mesi), &trace);
    assert_eq!((found.hitm, found.write_backs), (2, 1));
    assert_eq!(found.invalidations, 2 + 1);
    assert_eq!((found.cold, found.write_misses), (4, 3));
    assert_eq!(found.forwards, 0);
}

#[test]
fn the_latest_reader_forwards_under_mesif() {
    // Node 0's exclusive copy answers node 1, node 1 answers node 2, and node 2 answers node
    // 3's write.
    let trace = [
        (0, Kind::Read, 0),
        (1, Kind::Read, 0),
        (2, Kind::Read, 0),
        (3, Kind::Write, 0),
    ];
    let found = counts(with(Protocol::Mesif), &trace);
    assert_eq!((found.forwards, found.hitm, found.invalidations), (3, 0, 3));
    assert_eq!(counts(with(Protocol::Mesi), &trace).forwards, 0);
}

#[test]
fn no_node_forwards_after_the_forwarder_was_replaced() {
    // The caches have one line each. Node 1 forwards after its read, then replaces the line.
    // Node 2 finds only node 0's shared copy, gets the data from memory, and forwards to node
    // 3.
    let config = Config {
        caches: Caches::Private {
            l1: CacheSize { bytes: 64, ways: 1 },
            l2: None,
        },
        ..with(Protocol::Mesif)
    };
    let trace = [
        (0, Kind::Read, 0),
        (1, Kind::Read, 0),
        (1, Kind::Read, 64),
        (2, Kind::Read, 0),
        (3, Kind::Read, 0),
    ];
    assert_eq!(counts(config, &trace).forwards, 1 + 1);
}

#[test]
fn the_second_level_includes_the_first() {
    // L1 has two lines in one set, L2 has two sets of one way, of which lines 0 and 2 use the
    // same. Reading line 2 takes line 0 out of L2, and so out of L1, although L1 has room.
    let config = Config {
        caches: Caches::Private {
            l1: CacheSize {
                bytes: 128,
                ways: 2,
            },
            l2: Some(CacheSize {
                bytes: 128,
                ways: 1,
            }),
        },
        ..with(Protocol::Mesi)
    };
    let trace = [
        (0, Kind::Write, 0),
        (0, Kind::Read, 128),
        (0, Kind::Read, 0),
        (0, Kind::Read, 0),
    ];
    let found = counts(config, &trace);
    assert_eq!((found.cold, found.replacement, found.hits()), (2, 1, 1));
    // Line 0 was dirty when it was replaced; line 2 was not.
    assert_eq!(found.write_backs, 1);
    assert_eq!(found.first_level, 1);
}

#[test]
fn the_least_recently_used_line_is_evicted() {
    // Two ways. Line 0 is used again before line 2 comes, so line 1 is replaced: 0 still hits,
    // 1 misses.
    let config = Config {
        caches: Caches::Private {
            l1: CacheSize {
                bytes: 128,
                ways: 2,
            },
            l2: None,
        },
        ..with(Protocol::Mesi)
    };
    let lines = [0u64, 1, 0, 2, 0, 1];
    let trace = lines.map(|line| (0, Kind::Read, line * 64));
    let found = counts(config, &trace);
    assert_eq!((found.cold, found.replacement, found.hits()), (3, 1, 2));
}

#[test]
fn an_access_over_a_border_refers_to_both_granules() {
    let mut simulator = Simulator::new(Config::cache_line(2)).expect("possible");
    simulator
        .access(0, Address(60), 8, Kind::Write, ())
        .expect("possible");
    // Node 1 reads only bytes after the border; then node 0 writes across it again.
    simulator
        .access(1, Address(64), 4, Kind::Read, ())
        .expect("possible");
    simulator
        .access(0, Address(60), 8, Kind::Write, ())
        .expect("possible");
    // A wide access touches every granule in between.
    simulator
        .access(1, Address(1000), 200, Kind::Read, ())
        .expect("possible");
    let result = simulator.finish();
    // 1000 to 1199 lies in lines 15 to 18.
    assert_eq!(result.totals().references, 2 + 1 + 2 + 4);
    assert_eq!(result.accesses(), 4);
    assert_eq!(result.touched(), 2 + 4);
    let lines: Vec<_> = result.lines().collect();
    assert_eq!(lines[1].line, Address(64));
    assert_eq!((lines[1].nodes, lines[1].counts.upgrades), (2, 1));
    assert_eq!(lines[0].counts.hits(), 1);
}

#[test]
fn pages_fault_as_in_a_shared_memory_of_replicated_pages() {
    // Node 0 writes a page, node 1 reads it, node 0 writes another part, node 1 reads its own
    // part again: the last fault is false sharing.
    let trace = [
        (0, Kind::Write, 0x1000),
        (1, Kind::Read, 0x1800),
        (0, Kind::Write, 0x1000),
        (1, Kind::Read, 0x1800),
        (2, Kind::Write, 0x3000),
    ];
    let mut simulator = Simulator::new(Config::dsm()).expect("possible");
    for (node, kind, address) in trace {
        simulator
            .access(node, Address(address), 8, kind, ())
            .expect("possible");
    }
    let result = simulator.finish();
    let totals = result.totals();
    let faults = totals.faults();
    assert_eq!((faults.read, faults.write, faults.upgrade), (2, 2, 1));
    assert_eq!(faults.total(), 5);
    assert_eq!((totals.false_sharing, totals.true_sharing), (1, 0));
    // Working sets: two pages in all, one for each of three nodes.
    assert_eq!(result.touched(), 2);
    let sets: Vec<_> = result.nodes().iter().map(|node| node.cold).collect();
    assert_eq!(sets[..4], [1, 1, 1, 0]);
    assert_eq!(result.nodes().len(), 16);
}

/// Records, for each invalidated copy, the instructions that brought and destroyed it.
#[derive(Default)]
struct Conflicts {
    pairs: Vec<(u32, u32)>,
    upgrades: Vec<(u32, u32)>,
}

impl Observer for Conflicts {
    type Tag = u32;

    fn upgrade(&mut self, upgrade: &Upgrade<u32>) {
        self.upgrades.push((upgrade.tag, upgrade.invalidated));
    }

    fn invalidation(&mut self, invalidation: &Invalidation<u32>) {
        self.pairs.push((invalidation.victim_tag, invalidation.tag));
    }
}

#[test]
fn an_observer_gets_the_nodes_of_each_invalidation() {
    let mut simulator =
        Simulator::with_observer(Config::cache_line(2), Conflicts::default()).expect("possible");
    // Instruction 10 of node 0, 20 of node 1; instruction 11 invalidates the copy that 20
    // brought.
    for (node, address, kind, tag) in [
        (0, 0, Kind::Write, 10),
        (1, 8, Kind::Read, 20),
        (0, 0, Kind::Write, 11),
    ] {
        simulator
            .access(node, Address(address), 8, kind, tag)
            .expect("possible");
    }
    let conflicts = simulator.finish().into_observer();
    assert_eq!(conflicts.pairs, [(20, 11)]);
    assert_eq!(conflicts.upgrades, [(11, 1)]);
}

#[test]
fn a_thousand_nodes_share_a_line() {
    // All nodes read the line, one writes, all read again: 1023 copies are invalidated, and the
    // readers have as many useless misses, because they read a word that no other node wrote.
    let mut simulator = Simulator::new(Config::cache_line(1024)).expect("possible");
    for round in 0..2 {
        for node in (0..1024).rev() {
            simulator
                .access(node, Address(0), 8, Kind::Read, ())
                .expect("possible");
        }
        if round == 0 {
            simulator
                .access(7, Address(8), 8, Kind::Write, ())
                .expect("possible");
        }
    }
    simulator.check_invariants();
    let totals = simulator.finish().totals();
    assert_eq!((totals.cold, totals.upgrades), (1024, 1));
    assert_eq!((totals.invalidations, totals.false_sharing), (1023, 1023));
    assert_eq!(totals.hits(), 1);
}

#[test]
fn impossible_machines_and_accesses_are_refused() {
    let refused = |config: Config| Simulator::new(config).err();
    for granule in [0, 4, 48, 1 << 21, u64::MAX] {
        let config = Config::new(granule, 1);
        assert_eq!(refused(config), Some(Error::Granule(granule)));
    }
    for granule in [8, 1 << 20] {
        assert_eq!(refused(Config::new(granule, 1)), None);
    }
    assert_eq!(refused(Config::cache_line(0)), Some(Error::NoNodes));
    let many = Config::cache_line(u32::MAX);
    assert_eq!(refused(many), Some(Error::TooManyNodes(u32::MAX)));
    let odd_word = Config {
        word: 3,
        ..Config::dsm()
    };
    assert_eq!(refused(odd_word), Some(Error::Word(3)));
    let cached = |l1: (u64, u32), l2: Option<(u64, u32)>| {
        let size = |(bytes, ways)| CacheSize { bytes, ways };
        refused(Config {
            caches: Caches::Private {
                l1: size(l1),
                l2: l2.map(size),
            },
            ..Config::cache_line(1)
        })
    };
    assert_eq!(cached((32 << 10, 8), Some((1 << 20, 16))), None);
    for bad in [(1000, 8), (32 << 10, 0), (0, 8), (64, 8)] {
        assert!(matches!(
            cached(bad, None),
            Some(Error::CacheSize { level: 1, .. })
        ));
    }
    assert!(matches!(
        cached((1 << 20, 16), Some((32 << 10, 8))),
        Some(Error::Inclusion { .. })
    ));
    assert!(matches!(
        cached((1 << 40, 1), None),
        Some(Error::CacheTooLarge { level: 1, .. })
    ));

    let mut simulator = Simulator::new(Config::cache_line(2)).expect("possible");
    let mut access = |node, address, width| {
        simulator
            .access(node, Address(address), width, Kind::Read, ())
            .err()
    };
    assert_eq!(access(2, 0, 8), Some(Error::Node { node: 2, nodes: 2 }));
    let span = |address, width| Some(Error::Span { address, width });
    assert_eq!(access(0, 5, 0), span(5, 0));
    assert_eq!(access(0, u64::MAX, 2), span(u64::MAX, 2));
    assert_eq!(access(0, u64::MAX, 1), None);
    assert_eq!(simulator.finish().totals().references, 1);
}

#[test]
fn simulators_can_go_to_other_threads() {
    const fn sendable<T: Send>() {}
    sendable::<Simulator>();
    sendable::<Simulator<Conflicts>>();
}

#[test]
fn hits_are_counted_however_many_there_are() {
    let mut simulator = Simulator::new(Config::cache_line(2)).unwrap();
    let many = 200_001;
    for i in 0..many {
        let address = Address(0x1000 + i % 2 * 64);
        simulator.access(0, address, 8, Kind::Write, ()).unwrap();
    }
    simulator
        .access(1, Address(0x1000), 8, Kind::Read, ())
        .unwrap();
    let outcome = simulator.finish();
    assert_eq!(outcome.nodes()[0].references, many);
    let lines: Vec<u64> = outcome.lines().map(|l| l.counts.references).collect();
    assert_eq!(lines, [100_002, 100_000]);
}
