//! What this machine is and what it offers an observer.
//!
//! `sunder doctor` prints all of it, the choice of an observer depends on [`Capabilities`], and the
//! judge's cost of an interleaving starts from [`transfer_cost`]. This module must not change
//! anything: it writes no settings, and closes whatever a probe opens.

mod capabilities;
mod facts;
mod quota;
mod transfer;

pub use capabilities::{Capabilities, Capability, probe_memory_events, probe_user_registers};
pub(crate) use capabilities::{may_sample, open_clock};
pub use facts::{Cpu, Machine};
pub(crate) use facts::{online_cpus, parse_cpu_list};
use std::sync::OnceLock;
pub use transfer::{
    PairCost, TYPICAL_TRANSFER_NS, TransferCost, transfer_cost, transfer_cost_between,
};

/// On how many CPUs this process, and a program that it starts, can run at once. Read when it is first
/// asked for.
pub fn cpus() -> usize {
    static CPUS: OnceLock<usize> = OnceLock::new();
    *CPUS.get_or_init(|| std::thread::available_parallelism().map_or(1, usize::from))
}
