//! Sound samples passed from one thread to another by a ring. Its struct has the
//! position of the reader and that of the writer, each with its owner's copy of
//! the other, all on one cache line. Now and then one side looks at the other's
//! position, which is real sharing; most of the traffic is false sharing.
#![allow(unexpected_cfgs)]

use std::cell::{Cell, UnsafeCell};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

const CAPACITY: usize = 2048;

/// The position of one side, and where it last saw the other side.
#[derive(Default)]
#[cfg_attr(fixed, repr(align(64)))]
struct Side {
    position: AtomicUsize,
    seen: Cell<usize>,
}

struct Ring {
    writer: Side,
    reader: Side,
    slots: Box<[UnsafeCell<i32>]>,
}

// SAFETY: one thread writes and one reads; `seen` is used by its own side alone,
// and a slot by one side at a time, as the positions say.
unsafe impl Sync for Ring {}

impl Ring {
    fn new() -> Self {
        let slots = (0..CAPACITY).map(|_| UnsafeCell::new(0)).collect();
        Ring { writer: Side::default(), reader: Side::default(), slots }
    }

    fn push(&self, sample: i32) {
        let at = self.writer.position.load(Ordering::Relaxed);
        while at - self.writer.seen.get() == CAPACITY {
            let reader = self.reader.position.load(Ordering::Acquire);
            if reader == self.writer.seen.get() {
                thread::yield_now();
            }
            self.writer.seen.set(reader);
        }
        // SAFETY: the reader is past this slot.
        unsafe { *self.slots[at % CAPACITY].get() = sample };
        self.writer.position.store(at + 1, Ordering::Release);
    }

    fn pop(&self) -> i32 {
        let at = self.reader.position.load(Ordering::Relaxed);
        while at == self.reader.seen.get() {
            let writer = self.writer.position.load(Ordering::Acquire);
            if writer == at {
                thread::yield_now();
            }
            self.reader.seen.set(writer);
        }
        // SAFETY: the writer has filled this slot and will not touch it before `position` moves.
        let sample = unsafe { *self.slots[at % CAPACITY].get() };
        self.reader.position.store(at + 1, Ordering::Release);
        sample
    }
}

fn record(ring: &Ring, samples: u64) {
    let mut phase = 0u32;
    for _ in 0..samples {
        phase = phase.wrapping_add(40_503_217);
        ring.push((phase as i32 >> 16).pow(2) >> 15);
    }
}

fn play(ring: &Ring, samples: u64) -> u64 {
    let (mut level, mut hash) = (0i32, 0u64);
    for _ in 0..samples {
        level += (ring.pop() - level) >> 3;
        hash = (hash ^ level as u64).wrapping_mul(0x100_0000_01b3);
    }
    hash
}

fn arguments() -> Option<(usize, u64)> {
    let mut all = std::env::args().skip(1);
    let threads = all.next()?.parse().ok()?;
    let size = all.next()?.parse().ok()?;
    ((2..=64).contains(&threads) && size > 0).then_some((threads, size))
}

fn main() {
    let Some((threads, size)) = arguments() else {
        eprintln!("usage: sample_ring THREADS SIZE (two threads to a ring)");
        std::process::exit(2);
    };
    let rings: Vec<Box<Ring>> = (0..threads / 2).map(|_| Box::new(Ring::new())).collect();
    let samples = size / rings.len() as u64;
    let sum = thread::scope(|scope| {
        let mut players = Vec::new();
        for ring in &rings {
            scope.spawn(move || record(ring, samples));
            players.push(scope.spawn(move || play(ring, samples)));
        }
        players.into_iter().fold(0u64, |sum, player| sum.wrapping_mul(31) ^ player.join().unwrap())
    });
    println!("checksum {sum:016x}");
}
