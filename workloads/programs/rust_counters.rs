//! A static array of atomic counters, one a thread, eight on a line.

use std::process::exit;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Barrier;

const MAX_THREADS: usize = 64;

#[cfg(not(fixed))]
static COUNTERS: [AtomicU64; MAX_THREADS] = [const { AtomicU64::new(0) }; MAX_THREADS];

#[cfg(fixed)]
#[repr(align(64))]
struct OwnLine(AtomicU64);
#[cfg(fixed)]
static COUNTERS: [OwnLine; MAX_THREADS] = [const { OwnLine(AtomicU64::new(0)) }; MAX_THREADS];

fn counter(thread: usize) -> &'static AtomicU64 {
    #[cfg(not(fixed))]
    return &COUNTERS[thread];
    #[cfg(fixed)]
    return &COUNTERS[thread].0;
}

/// The counters of the first two threads that use them, such that both lie on
/// one line wherever the linker put the array.
fn first_counter() -> usize {
    let address = std::ptr::from_ref(counter(0)).addr();
    (64 - address % 64) % 64 / 8
}

fn count(counter: &AtomicU64, begin: u64, end: u64) {
    for i in begin..end {
        if i % 16 != 0 {
            counter.fetch_add(i & 7, Ordering::Relaxed); // touch: counters
        }
    }
}

fn arguments() -> Option<(usize, u64)> {
    let mut all = std::env::args().skip(1);
    let threads = all.next()?.parse().ok()?;
    let size = all.next()?.parse().ok()?;
    ((1..=MAX_THREADS).contains(&threads) && size > 0).then_some((threads, size))
}

fn main() {
    let Some((threads, size)) = arguments() else {
        eprintln!("usage: rust_counters THREADS (1-{MAX_THREADS}) SIZE");
        exit(2);
    };
    let first = first_counter();
    let begin = |id: usize| size * id as u64 / threads as u64;
    let start = Barrier::new(threads);
    std::thread::scope(|scope| {
        for id in 0..threads {
            let start = &start;
            scope.spawn(move || {
                start.wait();
                count(counter((first + id) % MAX_THREADS), begin(id), begin(id + 1));
            });
        }
    });
    let sum: u64 = (0..MAX_THREADS).map(|i| counter(i).load(Ordering::Relaxed)).sum();
    println!("checksum {sum:016x}");
}
