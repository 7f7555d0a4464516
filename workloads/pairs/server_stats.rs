//! Statistics of a server. One struct has an atomic for each part of the server
//! (accept, parse, look up, send), each part runs in a thread of its own and
//! counts only in its own field. The four fields lie on one cache line, on the
//! stack of `main`.
#![allow(unexpected_cfgs)]

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

#[derive(Default)]
#[cfg_attr(fixed, repr(align(64)))]
struct Count(AtomicU64);

impl Count {
    fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }
    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

#[derive(Default)]
struct Stats {
    accepted: Count,
    parsed_bytes: Count,
    cache_hits: Count,
    sent_bytes: Count,
}

fn mix(x: u64) -> u64 {
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb)
}

fn accept(stats: &Stats, requests: u64) {
    let mut addresses = [0u32; 64];
    for i in 0..requests {
        let client = mix(i);
        let last = &mut addresses[(client >> 58) as usize];
        if *last != client as u32 {
            stats.accepted.add(1);
        }
        *last = client as u32;
    }
}

fn parse(stats: &Stats, requests: u64) {
    for i in 0..requests {
        let header = mix(i).to_le_bytes();
        let length = header.iter().position(|&byte| byte < 32).unwrap_or(header.len());
        stats.parsed_bytes.add(length as u64);
    }
}

fn look_up(stats: &Stats, requests: u64) {
    let mut cache = [0u64; 64];
    for i in 0..requests {
        let key = mix(i) >> 56;
        let slot = &mut cache[key as usize % 64];
        stats.cache_hits.add(u64::from(*slot == key));
        *slot = key;
    }
}

fn send(stats: &Stats, requests: u64) {
    let mut window = 1u64;
    for i in 0..requests {
        window = if mix(i) % 16 == 0 { 1 } else { (window + 1).min(64) };
        stats.sent_bytes.add(window * 16);
    }
}

fn arguments() -> Option<(usize, u64)> {
    let mut all = std::env::args().skip(1);
    let threads = all.next()?.parse().ok()?;
    let size = all.next()?.parse().ok()?;
    ((1..=4).contains(&threads) && size > 0).then_some((threads, size))
}

fn main() {
    let Some((threads, size)) = arguments() else {
        eprintln!("usage: server_stats THREADS SIZE (at most 4 threads)");
        std::process::exit(2);
    };
    let stats = Stats::default();
    let parts = [accept, parse, look_up, send];
    thread::scope(|scope| {
        for part in &parts[..threads] {
            let stats = &stats;
            scope.spawn(move || part(stats, size / threads as u64));
        }
    });
    let counts = [&stats.accepted, &stats.parsed_bytes, &stats.cache_hits, &stats.sent_bytes];
    let sum = counts.iter().fold(0u64, |sum, count| sum.wrapping_mul(0x1_0001).wrapping_add(count.get()));
    println!("checksum {sum:016x}");
}
