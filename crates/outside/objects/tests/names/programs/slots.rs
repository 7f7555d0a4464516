//! Rust: atomics, locks, thread-locals, references, boxes, slices.
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

pub struct Slot {
    pub hits: AtomicU64,
    pub name: u64,
}

static COUNTERS: [AtomicU64; 4] = [const { AtomicU64::new(0) }; 4];
static LOCKS: [Mutex<u64>; 4] = [const { Mutex::new(0) }; 4];
mod inner {
    pub static SLOTS: [super::Slot; 2] = [const {
        super::Slot { hits: super::AtomicU64::new(0), name: 0 }
    }; 2];
}
thread_local! {
    static MINE: Cell<u64> = const { Cell::new(0) };
}

#[inline(never)]
fn reference(slot: &Slot) {
    slot.hits.fetch_add(1, Relaxed); // LINE reference
}

#[inline(never)]
fn boxed(slot: &mut Box<Slot>) {
    slot.name = 7; // LINE boxed
}

#[inline(never)]
fn shared(slot: &Arc<Slot>) {
    slot.hits.fetch_add(2, Relaxed); // LINE shared
}

#[inline(never)]
fn slice(slots: &mut [Slot]) {
    for slot in slots {
        slot.name += 1; // LINE slice
    }
}

fn main() {
    let n = std::env::args().count();
    COUNTERS[n & 3].fetch_add(1, Relaxed);
    *LOCKS[n & 3].lock().unwrap() += 1;
    reference(&inner::SLOTS[n & 1]);
    boxed(&mut Box::new(Slot { hits: AtomicU64::new(0), name: 0 }));
    shared(&Arc::new(Slot { hits: AtomicU64::new(0), name: 0 }));
    let mut all: Vec<Slot> = (0..n).map(|i| Slot { hits: AtomicU64::new(0), name: i as u64 }).collect();
    slice(&mut all);
    MINE.with(|m| m.set(m.get() + all[0].name));
}
