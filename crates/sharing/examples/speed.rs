//! What judging costs: ns per sample and access, and the memory of the table,
//! for a program with one hot line, one with many private lines, and one that
//! streams over memory. Run with
//! `cargo run --release -p sunder-sharing --example speed`.

use std::time::Instant;
use sunder_access::{Access, Address, CodeAddress, Kind, Provenance, ThreadId, Time};
use sunder_sharing::{Config, Judge, Sample};

const SAMPLES: u64 = 1_000_000;

fn access(address: u64, thread: u32) -> Access {
    Access {
        time: Time(0),
        thread: ThreadId(thread),
        instruction: CodeAddress(0x400 + address % 64),
        address: Address(address),
        width: 8,
        kind: Kind::Update,
        provenance: Provenance::Sampled,
        weight: 1.0,
    }
}

/// Judges `SAMPLES` samples of `threads` threads with the accesses that `make`
/// gives for a sample's number and thread.
fn measure(name: &str, threads: u64, make: impl Fn(u64, u64) -> Vec<u64>) {
    let samples: Vec<_> = (0..SAMPLES)
        .map(|i| {
            let thread = i % threads;
            let accesses = make(i, thread);
            let accesses = accesses.iter().map(|&a| (access(a, thread as u32), 0));
            (i * 100_000, thread as u32, accesses.collect::<Vec<_>>())
        })
        .collect();
    let mut judge = Judge::new(Config::default());
    let begin = Instant::now();
    for (time, thread, accesses) in &samples {
        judge.sample(&Sample {
            time: Time(*time),
            thread: ThreadId(*thread),
            period_ns: 250_000,
            accesses,
            near: &[CodeAddress(0x400)],
        });
    }
    let spent = begin.elapsed().as_nanos() as f64;
    let begin = Instant::now();
    let verdicts = judge.verdicts().len();
    let judged = begin.elapsed().as_micros();
    let accesses = judge.counts().accesses as f64;
    println!(
        "{name:32} {:6.0} ns a sample {:6.0} ns an access, {verdicts} verdicts in {judged} us",
        spent / SAMPLES as f64,
        spent / accesses,
    );
}

fn main() {
    measure("2 threads, 1 hot line", 2, |_, t| vec![0x1000 + 8 * t]);
    measure("8 threads, 1 hot line", 8, |_, t| vec![0x1000 + 8 * t]);
    measure("2 threads, 17 accesses each", 2, |_, t| {
        (0..17).map(|k| 0x1000 + 0x1000 * t + 8 * k).collect()
    });
    measure("8 threads, 1000 shared lines", 8, |i, t| {
        vec![0x1000 + (i / 8).wrapping_mul(0x9e37_79b9) % 1000 * 64 + 8 * t]
    });
    measure("streaming, every line new", 4, |i, _| {
        vec![0x10_0000 + i * 64]
    });
}
