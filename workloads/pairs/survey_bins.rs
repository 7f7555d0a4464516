//! Evaluation of a survey. Every scoped thread reads one part of the answers and
//! counts them in the four bins of its element of a small Vec, which it has by
//! `iter_mut`. No two threads have the same bins, but the bins of four threads
//! fill one cache line.
#![allow(unexpected_cfgs)]

use std::thread;

#[derive(Default)]
#[cfg_attr(fixed, repr(align(64)))]
struct Bins([u32; 4]);

#[derive(Clone, Copy)]
struct Answer {
    region: u8,
    choice: u8,
    age: u16,
}

fn make_answers(count: usize) -> Vec<Answer> {
    let mut state = 17u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        Answer {
            region: (state >> 26) as u8,
            choice: (state >> 24) as u8 % 4,
            age: 18 + (state >> 16) as u16 % 70,
        }
    };
    (0..count).map(|_| next()).collect()
}

/// Counts `answers` once for every question; gives a hash of the ages by region.
fn evaluate(answers: &[Answer], questions: u64, bins: &mut Bins) -> u64 {
    let mut ages = [0u32; 64];
    for question in 0..questions {
        for answer in answers {
            let choice = (u64::from(answer.choice) + question) % 4;
            bins.0[choice as usize] += 1;
            ages[answer.region as usize % 64] += u32::from(answer.age);
        }
        for sum in &mut ages {
            *sum %= 1 << 20;
        }
    }
    ages.iter().fold(0, |hash, &age| (hash ^ u64::from(age)).wrapping_mul(0x100_0000_01b3))
}

fn arguments() -> Option<(usize, u64)> {
    let mut all = std::env::args().skip(1);
    let threads = all.next()?.parse().ok()?;
    let size = all.next()?.parse().ok()?;
    ((1..=64).contains(&threads) && size > 0).then_some((threads, size))
}

fn main() {
    let Some((threads, questions)) = arguments() else {
        eprintln!("usage: survey_bins THREADS SIZE");
        std::process::exit(2);
    };
    let answers = make_answers(1 << 14);
    let mut bins: Vec<Bins> = (0..threads).map(|_| Bins::default()).collect();
    let part = answers.len().div_ceil(threads);
    let hashes: Vec<u64> = thread::scope(|scope| {
        let running: Vec<_> = answers
            .chunks(part)
            .zip(bins.iter_mut())
            .map(|(part, bins)| scope.spawn(move || evaluate(part, questions, bins)))
            .collect();
        running.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let mut sum = 0u64;
    for (bins, hash) in bins.iter().zip(hashes) {
        sum = bins.0.iter().fold(sum ^ hash, |sum, &n| sum.wrapping_mul(31).wrapping_add(n.into()));
    }
    println!("checksum {sum:016x}");
}
