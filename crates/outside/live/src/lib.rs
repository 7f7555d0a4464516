//! Observes a program while it runs: chooses an observer, drains it into the pipeline, spends the
//! budget of watchpoints on suspects, and puts the result together at the end. [`observe`] starts
//! a command, [`Look`] watches a process that runs already; a [`LiveRemedy`] acts on the program
//! meanwhile.
//!
//! Used by `protect`, `repair`, `record`, `place` and the library `sunder`. It must not judge
//! (`pipeline` does), not print or exit, and not stop a thread of the target.

mod choice;
mod claimed;
mod command;
mod ending;
mod executed;
mod executing;
mod kind;
mod late;
mod leaving;
mod limits;
mod look;
mod looks;
mod notices;
mod observer;
mod perf;
mod pmu;
pub mod program;
mod progress;
mod quiet;
mod remedy;
mod signals;
mod sought;
mod spawning;
mod timer;
mod watching;

pub use choice::{OBSERVERS, choose};
pub use command::{
    Accompanied, Begun, Observation, ObserveOptions, observe, observe_with, run_observed,
};
pub use ending::{pidfd, wait_end};
pub use kind::{Chosen, Kind, Measure, ObserverChoice, OpenOptions, Opened};
pub use leaving::{before_leaving, leave};
pub use look::{Ending, Look, is_program};
pub use looks::Looks;
pub use notices::{LEFT_ALONE, NoNotices, Notices, counted};
pub use observer::{Attention, LiveObserver};
pub use progress::{Seen, Show, Stage, Suspected};
pub use remedy::{LiveRemedy, Loaded, NoRemedy};
pub use signals::{Signals, outlive_limits};
pub use sought::{Running, Sought, processes};
pub use watching::Live;
