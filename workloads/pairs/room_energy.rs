//! Energy meters of the rooms of a house. Every thread reads the meter of one
//! room and adds what was used to a Mutex<u64> of that room; the mutexes are an
//! array behind an Arc. Nobody waits for a lock of another's, but a mutex with
//! its number is sixteen bytes, and four of them fall on one cache line.
#![allow(unexpected_cfgs)]

use std::sync::{Arc, Mutex};
use std::thread;

const ROOMS: usize = 16;

#[derive(Default)]
#[cfg_attr(fixed, repr(align(64)))]
struct Room {
    used: Mutex<u64>,
}

struct House {
    rooms: [Room; ROOMS],
}

/// A meter that counts pulses and now and then starts again at zero.
struct Meter {
    pulses: u32,
    load: u32,
}

impl Meter {
    fn new(room: usize) -> Self {
        Meter { pulses: 0, load: 1000 + 37 * room as u32 }
    }

    /// What was used since the last reading.
    fn read(&mut self) -> u64 {
        self.load = self.load.wrapping_mul(1_103_515_245).wrapping_add(12345);
        let before = self.pulses;
        self.pulses = before.wrapping_add(self.load >> 22) % 1_000_000;
        u64::from(self.pulses.checked_sub(before).unwrap_or(self.pulses))
    }
}

fn watch(house: &House, room: usize, readings: u64) -> u64 {
    let mut meter = Meter::new(room);
    let mut highest = 0;
    for _ in 0..readings {
        let used = meter.read();
        let mut total = house.rooms[room].used.lock().unwrap();
        *total += used;
        drop(total);
        highest = highest.max(used);
    }
    highest
}

fn arguments() -> Option<(usize, u64)> {
    let mut all = std::env::args().skip(1);
    let threads = all.next()?.parse().ok()?;
    let size = all.next()?.parse().ok()?;
    ((1..=ROOMS).contains(&threads) && size > 0).then_some((threads, size))
}

fn main() {
    let Some((threads, size)) = arguments() else {
        eprintln!("usage: room_energy THREADS SIZE (at most {ROOMS} threads)");
        std::process::exit(2);
    };
    let house = Arc::new(House { rooms: Default::default() });
    let watchers: Vec<_> = (0..threads)
        .map(|room| {
            let house = Arc::clone(&house);
            thread::spawn(move || watch(&house, room, size / threads as u64))
        })
        .collect();
    let mut sum = 0u64;
    for watcher in watchers {
        sum = sum.wrapping_mul(31).wrapping_add(watcher.join().unwrap());
    }
    for room in &house.rooms {
        sum = sum.wrapping_mul(31).wrapping_add(*room.used.lock().unwrap());
    }
    println!("checksum {sum:016x}");
}
