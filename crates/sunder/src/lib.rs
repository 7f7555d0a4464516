//! Finds false sharing in running programs: threads that write different data on one cache line,
//! and so take the line from each other again and again, although nothing in the source is shared.
//!
//! This library does what the program `sunder` does. It observes a command ([`Detect`]), a running
//! process ([`Attach`]) or a function of the calling program ([`observe`]), on any Linux x86-64
//! machine, with or without hardware counters. The answer is a [`Findings`]: which data share a
//! line, who touches them, what that costs at most, and what to change. Results are saved, read,
//! compared ([`diff`]) and rendered ([`render`]). Remedies take the data apart while a program runs
//! ([`Cure`], [`Protect`], [`Repair`], [`Place`]); a recorded trace says beforehand what a change would save
//! ([`Record`], [`Simulate`], [`WhatIf`]). The libraries that go into observed programs are
//! carried within this one; nothing else needs to be installed.
//!
//! Used by whoever wants these in a program or a test of his own. It must not print, and must not
//! exit.
//!
//! # False sharing in a benchmark
//!
//! A Rust test can assert that the threads of a benchmark do not disturb each other:
//!
//! ```
//! use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
//!
//! // Two counters, one for each thread, on the same cache line.
//! static COUNTERS: [AtomicU64; 2] = [AtomicU64::new(0), AtomicU64::new(0)];
//!
//! fn benchmark() {
//!     std::thread::scope(|scope| {
//!         for counter in &COUNTERS {
//!             scope.spawn(move || {
//!                 for _ in 0..1_000_000 {
//!                     counter.fetch_add(1, Relaxed);
//!                 }
//!             });
//!         }
//!     });
//! }
//!
//! let ((), result) = match sunder::observe(benchmark) {
//!     Ok(done) => done,
//!     // Containers may forbid what observing needs; then nothing is known.
//!     Err(sunder::Error::Refused(why)) => return println!("SKIP: {why}"),
//!     Err(error) => panic!("{error}"),
//! };
//! for finding in result.significant(1.0) {
//!     println!("{}: {:.0} %", finding.object.short_name(), finding.cost_percent);
//! }
//! # assert_eq!(COUNTERS.each_ref().map(|c| c.load(Relaxed)), [1_000_000; 2]);
//! ```
//!
//! # A command, and its report
//!
//! ```no_run
//! let done = sunder::Detect::new("./server").args(["--threads", "8"]).run()?;
//! std::fs::write("report.html", sunder::render::html(&done.findings))?;
//! assert!(done.exit.success());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![deny(missing_docs)]
#![forbid(unsafe_code)]

mod error;
mod here;
mod observe;
mod remedies;
pub mod render;
mod results;
mod traces;

pub use error::Error;
pub use here::observe;
pub use observe::{Attach, Detect, Detected, Observer};
/// What isolated threads commit, for tools that read it: see [`Protect::with_commits`].
pub mod commits {
    pub use sunder_protect::commits::format::{Event, Reader};
}
pub use remedies::{Cure, Cured, Place, Placement, Protect, Protected, Repair, Repaired};
pub use results::{Comparison, diff, import, open, save};
pub use sunder_findings::{self as findings, Finding, Findings};
pub use traces::{Order, Record, Recorded, Simulate, Via, WhatIf};

/// What the functions of this library return.
pub type Result<T> = std::result::Result<T, Error>;
