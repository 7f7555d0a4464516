//! Packet counts of a small router. Every thread handles the packets of one port
//! and counts the bytes it passes on in its element of a static array of atomics,
//! which other parts of the program may read at any time. Eight of these counters
//! fall on one cache line.
#![allow(unexpected_cfgs)]

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

const PORTS: usize = 16;

#[cfg_attr(fixed, repr(align(64)))]
struct Counter(AtomicU64);

static PASSED: [Counter; PORTS] = [const { Counter(AtomicU64::new(0)) }; PORTS];

struct Packet {
    from: u32,
    to: u32,
    length: u16,
}

fn packet(seed: &mut u64) -> Packet {
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    Packet { from: (*seed >> 32) as u32, to: *seed as u32, length: (*seed >> 20) as u16 % 1500 }
}

/// Passes packets on by a route cache; a packet from an odd network is dropped.
fn route(port: usize, packets: u64) -> u64 {
    let mut routes = vec![0u32; 256];
    let mut seed = 0x9e37_79b9_7f4a_7c15 ^ port as u64;
    for _ in 0..packets {
        let packet = packet(&mut seed);
        let route = &mut routes[packet.to as usize % 256];
        *route = route.rotate_left(5) ^ packet.from;
        if packet.from % 8 != 7 {
            PASSED[port].0.fetch_add(u64::from(packet.length), Ordering::Relaxed);
        }
    }
    routes.iter().fold(0, |hash: u64, &route| hash.wrapping_mul(31) + u64::from(route))
}

fn arguments() -> Option<(usize, u64)> {
    let mut all = std::env::args().skip(1);
    let threads = all.next()?.parse().ok()?;
    let size = all.next()?.parse().ok()?;
    ((1..=PORTS).contains(&threads) && size > 0).then_some((threads, size))
}

fn main() {
    let Some((threads, size)) = arguments() else {
        eprintln!("usage: packet_counters THREADS SIZE (at most {PORTS} threads)");
        std::process::exit(2);
    };
    let packets = size / threads as u64;
    let ports: Vec<_> =
        (0..threads).map(|port| thread::spawn(move || route(port, packets))).collect();
    let mut sum = 0u64;
    for port in ports {
        sum = sum.wrapping_mul(31) ^ port.join().unwrap();
    }
    for counter in &PASSED {
        sum = sum.wrapping_mul(31).wrapping_add(counter.0.load(Ordering::Relaxed));
    }
    println!("checksum {sum:016x}");
}
