//! Complete recordings of a program's memory accesses, and replays of them.

use crate::{Findings, Result};
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitStatus;
use sunder_live::NoNotices;
pub use sunder_record::Via;
pub use sunder_replay::Order;

/// Records every memory access of a command into a trace file.
///
/// ```no_run
/// sunder::Record::new("app.trace", "./app").run()?;
/// let result = sunder::Simulate::new("app.trace").granule(128).run()?;
/// # Ok::<(), sunder::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Record(sunder_record::Options);

/// A command that was recorded.
#[derive(Clone, Copy, Debug)]
pub struct Recorded {
    /// How it ended.
    pub exit: ExitStatus,
    /// Whether anything was recorded.
    pub is_there: bool,
}

impl Record {
    /// The file to write, and a program, looked for in `PATH` if its name has no slash.
    pub fn new(trace: impl Into<PathBuf>, program: impl Into<OsString>) -> Self {
        Self(sunder_record::Options {
            program: vec![program.into()],
            output: trace.into(),
            via: Via::Auto,
            before_reading: None,
        })
    }

    /// More arguments of the program.
    #[must_use]
    pub fn args<A: Into<OsString>>(mut self, arguments: impl IntoIterator<Item = A>) -> Self {
        self.0.program.extend(arguments.into_iter().map(Into::into));
        self
    }

    /// How to record; the way that fits the program if not called.
    #[must_use]
    pub const fn via(mut self, via: Via) -> Self {
        self.0.via = via;
        self
    }

    /// Runs the command to its end.
    ///
    /// # Errors
    /// If it can't be executed, or the file can't be written.
    pub fn run(&self) -> Result<Recorded> {
        let done = sunder_record::record(&self.0, &NoNotices, None)?;
        Ok(Recorded {
            exit: done.exit,
            is_there: done.is_there,
        })
    }
}

/// Replays a trace on a simulated machine: which nodes miss, why, and on whose data.
#[derive(Clone)]
pub struct Simulate(sunder_replay::Simulate);

impl Simulate {
    /// A trace, replayed as it was recorded, on lines of 64 bytes, with a node for each thread.
    pub fn new(trace: impl Into<PathBuf>) -> Self {
        Self(sunder_replay::Simulate::new(trace.into()))
    }

    /// Bytes that are kept coherent as a whole: a cache line, or a page.
    #[must_use]
    pub const fn granule(mut self, bytes: u64) -> Self {
        self.0.granule = bytes;
        self
    }

    /// Nodes with caches of their own.
    #[must_use]
    pub const fn nodes(mut self, count: u32) -> Self {
        self.0.nodes = Some(count);
        self
    }

    /// In which order the threads' accesses come.
    #[must_use]
    pub const fn order(mut self, order: Order) -> Self {
        self.0.order = order;
        self
    }

    /// Gives a field (`TYPE.FIELD`), a type's objects (`TYPE`) or elements (`OBJECT[]`) lines of
    /// their own.
    #[must_use]
    pub fn pad(mut self, what: impl Into<String>) -> Self {
        self.0.pad.push(what.into());
        self
    }

    /// Replays the trace.
    ///
    /// # Errors
    /// If there is no such trace, no such machine, or a name that the trace does not have.
    pub fn run(&self) -> Result<Findings> {
        Ok(sunder_replay::simulate::simulate(&self.0)?)
    }
}

/// Tries on a trace what takes falsely shared objects apart, and says what each change saves.
#[derive(Clone)]
pub struct WhatIf(sunder_replay::WhatIf);

impl WhatIf {
    /// A trace; changes are tried for its eight dearest findings.
    pub fn new(trace: impl Into<PathBuf>) -> Self {
        Self(sunder_replay::WhatIf {
            base: sunder_replay::Simulate::new(trace.into()),
            top: 8,
        })
    }

    /// For how many findings changes are tried, the dearest first.
    #[must_use]
    pub const fn top(mut self, findings: usize) -> Self {
        self.0.top = findings;
        self
    }

    /// Replays the trace with each change.
    ///
    /// # Errors
    /// If there is no such trace, or no such machine.
    pub fn run(&self) -> Result<Findings> {
        Ok(sunder_replay::what_if::what_if(&self.0)?)
    }
}
