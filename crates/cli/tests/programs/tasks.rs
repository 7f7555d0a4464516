//! Threads of the standard library that compute on neighbours of one page, and use its
//! locks, channels, scoped threads, panics and atomics.

use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Barrier, Condvar, Mutex, RwLock};
use std::thread;

#[repr(C, align(4096))]
pub struct Shared([u64; 512]);

#[unsafe(no_mangle)]
#[used]
pub static mut shared: Shared = Shared([0; 512]);

fn spin(own: usize, loops: u64) {
    let at = unsafe { (&raw mut shared).cast::<u64>().add(own) };
    for i in 0..loops {
        unsafe { at.write_volatile(at.read_volatile() + black_box(i % 5)) };
    }
}

fn main() {
    let total = Arc::new(Mutex::new(0u64));
    let table = Arc::new(RwLock::new(Vec::new()));
    let count = Arc::new(AtomicU64::new(0));
    let barrier = Arc::new(Barrier::new(4));
    let (sender, receiver) = channel();
    let threads: Vec<_> = (0..4)
        .map(|own| {
            let (total, table, count) = (total.clone(), table.clone(), count.clone());
            let (barrier, sender) = (barrier.clone(), sender.clone());
            thread::spawn(move || {
                for round in 0..20u64 {
                    spin(own, 200_000);
                    *total.lock().unwrap() += round;
                    table.write().unwrap().push(own as u64 * 100 + round);
                    count.fetch_add(1, Ordering::Relaxed);
                    sender.send(vec![own as u8; 1000 + round as usize]).unwrap();
                    barrier.wait();
                }
                if own == 3 {
                    std::panic::resume_unwind(Box::new(own));
                }
                own
            })
        })
        .collect();
    drop(sender);
    let bytes: usize = receiver.iter().map(|v| v.len()).sum();
    let ended: Vec<_> = threads.into_iter().map(|t| t.join().map_err(|e| e.downcast_ref::<usize>().copied())).collect();
    let pair = (Mutex::new(0), Condvar::new());
    thread::scope(|scope| {
        for own in 0..2 {
            let pair = &pair;
            scope.spawn(move || {
                for round in 0..30 {
                    spin(own, 50_000);
                    let mut turn = pair.0.lock().unwrap();
                    while *turn != round * 2 + own {
                        turn = pair.1.wait(turn).unwrap();
                    }
                    *turn += 1;
                    pair.1.notify_all();
                }
            });
        }
    });
    let sums: Vec<u64> = (0..4).map(|i| unsafe { (&raw const shared).cast::<u64>().add(i).read_volatile() }).collect();
    println!(
        "{} {} {} {bytes} {ended:?} {sums:?} {}",
        total.lock().unwrap(),
        table.read().unwrap().iter().sum::<u64>(),
        count.load(Ordering::Relaxed),
        pair.0.lock().unwrap(),
    );
    std::process::exit(9);
}
