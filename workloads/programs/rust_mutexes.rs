//! A static array of mutexes, one a thread: no thread ever waits for another,
//! but four mutexes with their data lie on a line.

use std::process::exit;
use std::sync::{Barrier, Mutex};

const MAX_THREADS: usize = 64;

/// The array, at the start of a line in both variants.
#[repr(align(64))]
struct Totals([Total; MAX_THREADS]);

#[cfg_attr(fixed, repr(align(64)))]
struct Total(Mutex<u64>);

static TOTALS: Totals = Totals([const { Total(Mutex::new(0)) }; MAX_THREADS]);

fn add(total: &Mutex<u64>, value: u64) {
    if let Ok(mut total) = total.lock() { // touch: lock
        *total += value; // touch: totals
    }
}

fn work(id: usize, begin: u64, end: u64) {
    for i in begin..end {
        add(&TOTALS.0[id].0, i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 54);
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
        eprintln!("usage: rust_mutexes THREADS (1-{MAX_THREADS}) SIZE");
        exit(2);
    };
    let begin = |id: usize| size * id as u64 / threads as u64;
    let start = Barrier::new(threads);
    std::thread::scope(|scope| {
        for id in 0..threads {
            let start = &start;
            scope.spawn(move || {
                start.wait();
                work(id, begin(id), begin(id + 1));
            });
        }
    });
    let sum: u64 = TOTALS.0.iter().map(|t| t.0.lock().map_or(0, |sum| *sum)).sum();
    println!("checksum {sum:016x}");
}
