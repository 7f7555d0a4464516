//! Ticks: the signals at which a worker commits and takes over what others wrote, or ends its
//! episode. Threads of the program send them. Contexts: all.

use core::sync::atomic::Ordering::{Acquire, Relaxed};
use sunder_guest::system;
use sunder_wire::isolation::{Control, Slot};

/// The signal of a tick. (In a worker, no signal has the meaning that it has to the program.) A
/// standard signal, because it needs no entry of the signal queue, which may be full.
pub const SIGNAL: i32 = libc::SIGUSR1;

/// The interval between two ticks, in microseconds.
pub fn interval(control: &Control) -> u32 {
    control.tick.load(Relaxed).clamp(100, 1_000_000)
}

/// Sends a worker its tick signal.
pub fn send(slot: &Slot) {
    let pid = slot.worker.load(Acquire);
    if pid != 0 {
        // The process id is still the worker's: it is our child and not yet collected.
        system::send_to(pid, pid, SIGNAL);
    }
}
