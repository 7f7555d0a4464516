//! Watches every process of a machine. Samples of all CPUs tell *whether* a process has threads that
//! run at once (`census`); such a process is looked at closely for a while, by the same loop, judge and
//! names as under `attach` (`look`), which tells *which lines*; what is found is compared with what was
//! there before (`known`). Nothing is loaded into a process, and none is stopped.
//!
//! Called by the program `sunder`, in a process that has given up its other rights. It must not print,
//! write to files but to that of answers (`answers`), which the caller opens, or talk to others: its records go
//! to the caller.

mod accounts;
mod answers;
mod aside;
mod census;
mod interest;
mod known;
mod look;
mod looked;
mod naming;
mod options;
mod origin;
mod owner;
mod rights;
mod select;
mod spend;
mod turns;
mod watcher;

pub use answers::Answers;
pub use aside::END as END_WORK;
pub use options::{Asked, Options, Shunned};
pub use rights::{Missing, missing};
pub use select::Selection;
pub use watcher::watch;
