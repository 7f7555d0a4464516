//! Measures how many accesses a second the simulator takes on made-up mixes; how its time grows
//! with the length of the trace, the nodes and the touched granules; and the memory for each
//! touched granule. The traces are made before the clock starts. Prints the median of several
//! runs with the fastest and the slowest. At the end it compares two machines at once with one
//! alone.

use std::time::Instant;
use sunder_coherence::{
    Address, CacheSize, Caches, Config, Error, Kind, Miss, Observer, Protocol, Simulator,
};

const RUNS: usize = 5;
const LENGTH: usize = 8_000_000;

/// One access of 8 bytes.
struct Event {
    address: u64,
    node: u32,
    kind: Kind,
}

/// Marsaglia's xorshift, which is good enough to scatter addresses.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((u128::from(self.0) * u128::from(limit)) >> 64) as u64
    }
}

#[derive(Clone, Copy)]
enum Mix {
    /// Nine of ten accesses are to 16 lines of the node's own, the others to all of its own
    /// lines; one in a hundred is to 64 lines of all nodes.
    Private,
    /// Reads of lines that all nodes read.
    ReadShared,
    /// Runs of 1 to 8 accesses to 64 lines. In each line every node has a word of its own.
    PingPong,
    /// Every node walks through its own lines, and all words of each.
    Walk,
}

fn kind(random: &mut Random, writes_percent: u64) -> Kind {
    if random.below(100) < writes_percent {
        Kind::Write
    } else {
        Kind::Read
    }
}

/// `length` accesses by `nodes` nodes to about `lines` lines, in turns of some tens of
/// accesses, as threads that really run are interleaved in a trace.
fn trace(mix: Mix, length: usize, nodes: u32, lines: u64) -> Vec<Event> {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let own = (lines / u64::from(nodes)).max(16);
    let mut walked = vec![0u64; nodes as usize];
    let mut events = Vec::with_capacity(length);
    while events.len() < length {
        let node = random.below(nodes.into()) as u32;
        let base = (1 << 40) + u64::from(node) * own * 64;
        let turn = match mix {
            Mix::PingPong => 1 + random.below(8),
            _ => 8 + random.below(64),
        };
        let contended = random.below(64);
        for _ in 0..turn {
            let word = random.below(8);
            let (address, kind) = match mix {
                Mix::Private => match random.below(100) {
                    0 => (random.below(64) * 64 + word * 8, kind(&mut random, 20)),
                    1..10 => (
                        base + random.below(own) * 64 + word * 8,
                        kind(&mut random, 30),
                    ),
                    _ => (
                        base + random.below(16) * 64 + word * 8,
                        kind(&mut random, 30),
                    ),
                },
                Mix::ReadShared => (random.below(lines) * 64 + word * 8, Kind::Read),
                Mix::PingPong => (
                    contended * 64 + u64::from(node % 8) * 8,
                    kind(&mut random, 50),
                ),
                Mix::Walk => {
                    let step = &mut walked[node as usize];
                    *step += 1;
                    (base + *step % (own * 8) * 8, kind(&mut random, 30))
                }
            };
            events.push(Event {
                address,
                node,
                kind,
            });
        }
    }
    events.truncate(length);
    events
}

/// Counts misses by instruction, as a caller would.
struct ByTag(Vec<u64>);

impl Observer for ByTag {
    type Tag = (u32, u32);

    fn miss(&mut self, miss: &Miss<Self::Tag>) {
        self.0[miss.tag.0 as usize % 1024] += 1;
    }
}

fn replay<O: Observer>(
    config: Config,
    events: &[Event],
    observer: O,
    tag: impl Fn(usize) -> O::Tag,
) -> Result<(f64, sunder_coherence::Counts), Error> {
    let mut simulator = Simulator::with_observer(config, observer)?;
    let start = Instant::now();
    for (number, event) in events.iter().enumerate() {
        simulator.access(
            event.node,
            Address(event.address),
            8,
            event.kind,
            tag(number),
        )?;
    }
    let result = simulator.finish();
    let seconds = start.elapsed().as_secs_f64();
    Ok((events.len() as f64 / seconds / 1e6, result.totals()))
}

fn report(
    label: &str,
    mut run: impl FnMut() -> Result<(f64, sunder_coherence::Counts), Error>,
) -> Result<(), Error> {
    let mut speeds = Vec::new();
    let mut totals = sunder_coherence::Counts::default();
    for _ in 0..RUNS {
        let (speed, counts) = run()?;
        speeds.push(speed);
        totals = counts;
    }
    speeds.sort_by(f64::total_cmp);
    println!(
        "{label:<44} {:>7.1} M/s ({:.1} to {:.1})  hits {:>6.2} %  cold {}",
        speeds[RUNS / 2],
        speeds[0],
        speeds[RUNS - 1],
        totals.hits() as f64 / totals.references as f64 * 100.0,
        totals.cold,
    );
    Ok(())
}

fn plain(label: &str, config: Config, events: &[Event]) -> Result<(), Error> {
    report(label, || replay(config, events, (), |_| ()))
}

fn main() -> Result<(), Error> {
    let eight = Config::cache_line(8);
    // This is measured first, before the allocator has memory to reuse.
    println!("memory for each touched line:");
    for (name, sharers) in [("1 node", 1), ("8 nodes that write", 8)] {
        let bytes = bytes_a_line(eight, sharers)?;
        println!("{name:<20} {bytes:.0} bytes");
    }
    println!("8 nodes, 64-byte lines, {LENGTH} accesses, infinite caches, MESI:");
    let private = trace(Mix::Private, LENGTH, 8, 8192);
    plain("private, 8192 lines", eight, &private)?;
    report("private, 8192 lines, with tags", || {
        replay(eight, &private, ByTag(vec![0; 1024]), |n| (n as u32, 0))
    })?;
    let finite = Config {
        caches: Caches::Private {
            l1: CacheSize {
                bytes: 48 << 10,
                ways: 12,
            },
            l2: Some(CacheSize {
                bytes: 1 << 20,
                ways: 16,
            }),
        },
        ..eight
    };
    plain("private, L1 48 KiB, L2 1 MiB", finite, &private)?;
    let pages = Config {
        nodes: 16,
        ..Config::dsm()
    };
    plain("private, 4096-byte pages", pages, &private)?;
    let read_shared = trace(Mix::ReadShared, LENGTH, 8, 8192);
    plain("read-shared, 8192 lines", eight, &read_shared)?;
    let ping_pong = trace(Mix::PingPong, LENGTH, 8, 64);
    plain("ping-pong, 64 lines", eight, &ping_pong)?;
    let mesif = Config {
        protocol: Protocol::Mesif,
        ..eight
    };
    plain("ping-pong, 64 lines, MESIF", mesif, &ping_pong)?;
    plain("ping-pong, 4096-byte pages", pages, &ping_pong)?;

    println!("length of the trace (private, 8192 lines, 8 nodes):");
    for length in [2, 4, 8, 16] {
        let events = trace(Mix::Private, length * 1_000_000, 8, 8192);
        plain(&format!("{length} M accesses"), eight, &events)?;
    }
    println!("nodes:");
    for nodes in [2, 8, 32, 128, 1024] {
        let machine = Config::cache_line(nodes);
        for (name, mix, lines) in [
            ("private", Mix::Private, 16_384),
            ("read-shared", Mix::ReadShared, 1024),
            ("ping-pong", Mix::PingPong, 64),
        ] {
            let events = trace(mix, LENGTH / 2, nodes, lines);
            plain(&format!("{nodes} nodes, {name}"), machine, &events)?;
        }
    }
    println!("touched lines (8 nodes):");
    for lines in [1 << 12, 1 << 15, 1 << 18, 1 << 20] {
        for (name, mix) in [("private", Mix::Private), ("walk", Mix::Walk)] {
            let events = trace(mix, LENGTH, 8, lines);
            plain(&format!("{lines} lines, {name}"), eight, &events)?;
        }
    }
    println!("two machines side by side (private, 8192 lines, 8 nodes):");
    let (alone, _) = replay(eight, &private, (), |_| ())?;
    let speeds = std::thread::scope(|scope| {
        let machines = [(); 2].map(|()| scope.spawn(|| replay(eight, &private, (), |_| ())));
        machines.map(|machine| machine.join().map_or(0.0, |run| run.map_or(0.0, |r| r.0)))
    });
    println!("alone {alone:.1} M/s, together {speeds:.1?} M/s");
    Ok(())
}

/// Memory in use, as the kernel reports it; 0 if it does not.
fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = text.split_whitespace().nth(1);
    pages
        .and_then(|pages| pages.parse::<u64>().ok())
        .unwrap_or(0)
        * 4096
}

/// Bytes that a simulator takes for each of 2^20 lines, each written by `sharers` nodes.
fn bytes_a_line(config: Config, sharers: u32) -> Result<f64, Error> {
    let lines = 1u64 << 20;
    let before = resident();
    let mut simulator = Simulator::new(config)?;
    for line in 0..lines {
        for node in 0..sharers {
            let address = Address(line * 64 + u64::from(node) * 8);
            simulator.access(node, address, 8, Kind::Write, ())?;
        }
    }
    let after = resident();
    Ok(after.saturating_sub(before) as f64 / simulator.lines() as f64)
}
