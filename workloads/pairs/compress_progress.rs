//! Run-length compression of several files at once. Every worker says how far it
//! is in an element of a Vec<AtomicUsize> behind an Arc, from which a progress
//! bar could be drawn. The elements of eight workers fill one cache line.
#![allow(unexpected_cfgs)]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;
use std::thread;

#[derive(Default)]
#[cfg_attr(fixed, repr(align(64)))]
struct Progress(AtomicUsize);

fn make_file(worker: usize) -> Vec<u8> {
    let mut state = 0x2545_f491u32.wrapping_add(worker as u32);
    let mut file = Vec::with_capacity(4096);
    while file.len() < 4096 {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let run = 1 + (state >> 29) as usize;
        file.resize(file.len() + run, (state >> 16) as u8);
    }
    file
}

/// Compresses `input` into `output`; adds to `done` the length of every run.
fn compress(input: &[u8], output: &mut Vec<u8>, done: &AtomicUsize) {
    output.clear();
    let mut at = 0;
    while at < input.len() {
        let byte = input[at];
        let rest = &input[at..];
        let run = rest.iter().take(255).take_while(|&&b| b == byte).count();
        output.push(run as u8);
        output.push(byte);
        at += run;
        done.fetch_add(run, Ordering::Relaxed);
    }
}

fn work(worker: usize, rounds: u64, progress: &[Progress]) -> u64 {
    let file = make_file(worker);
    let mut output = Vec::with_capacity(2 * file.len());
    let mut hash = 0u64;
    for _ in 0..rounds {
        compress(&file, &mut output, &progress[worker].0);
        hash = hash.wrapping_mul(31).wrapping_add(output.len() as u64);
    }
    output.iter().fold(hash, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

fn arguments() -> Option<(usize, u64)> {
    let mut all = std::env::args().skip(1);
    let threads = all.next()?.parse().ok()?;
    let size = all.next()?.parse().ok()?;
    ((1..=64).contains(&threads) && size > 0).then_some((threads, size))
}

fn main() {
    let Some((threads, size)) = arguments() else {
        eprintln!("usage: compress_progress THREADS SIZE");
        std::process::exit(2);
    };
    let rounds = size / threads as u64;
    let progress: Arc<Vec<Progress>> = Arc::new((0..threads).map(|_| Progress::default()).collect());
    let workers: Vec<_> = (0..threads)
        .map(|worker| {
            let progress = Arc::clone(&progress);
            thread::spawn(move || work(worker, rounds, &progress))
        })
        .collect();
    let mut sum = 0u64;
    for worker in workers {
        sum = sum.wrapping_mul(31) ^ worker.join().unwrap();
    }
    for done in progress.iter() {
        sum = sum.wrapping_mul(31).wrapping_add(done.0.load(Ordering::Relaxed) as u64);
    }
    println!("checksum {sum:016x}");
}
