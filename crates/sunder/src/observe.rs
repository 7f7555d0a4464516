//! Observing a command or a running process.

use crate::{Findings, Result};
use std::ffi::OsString;
use std::process::ExitStatus;
use std::time::Duration;
use sunder_access::ProcessId;
use sunder_live::{Ending, Look, Observation, ObserveOptions};

pub use sunder_live::ObserverChoice as Observer;

/// Starts a command and observes it to its end. Output, streams, signals and exit status of the
/// command are what they are without it.
///
/// ```no_run
/// let done = sunder::Detect::new("./bench").arg("--quick").threshold(2.0).run()?;
/// for finding in done.findings.significant(2.0) {
///     println!("{}", finding.object.short_name());
/// }
/// # Ok::<(), sunder::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Detect {
    what: Observation,
    sampled: u32,
}

/// A command that was observed to its end.
#[derive(Clone, Debug)]
pub struct Detected {
    /// What was found.
    pub findings: Findings,
    /// How the command ended.
    pub exit: ExitStatus,
}

impl Detect {
    /// A program, looked for in `PATH` if its name has no slash.
    pub fn new(program: impl Into<OsString>) -> Self {
        Self {
            what: Observation {
                program: vec![program.into()],
                ..Observation::default()
            },
            sampled: sunder_protect::observer::SAMPLED,
        }
    }

    /// One more argument of the program.
    #[must_use]
    pub fn arg(mut self, argument: impl Into<OsString>) -> Self {
        self.what.program.push(argument.into());
        self
    }

    /// More arguments of the program.
    #[must_use]
    pub fn args<A: Into<OsString>>(mut self, arguments: impl IntoIterator<Item = A>) -> Self {
        let arguments = arguments.into_iter().map(Into::into);
        self.what.program.extend(arguments);
        self
    }

    /// Which observer takes the samples; [`Observer::Auto`] if not called.
    #[must_use]
    pub const fn observer(mut self, observer: Observer) -> Self {
        self.what.observer = observer;
        self
    }

    /// Samples a second and thread; high at the start and lower later if not called.
    #[must_use]
    pub const fn frequency(mut self, hertz: u32) -> Self {
        self.what.options.frequency = Some(hertz);
        self
    }

    /// Bytes of a cache line; read from the machine if not called.
    #[must_use]
    pub const fn line_size(mut self, bytes: u32) -> Self {
        self.what.options.line_size = Some(bytes);
        self
    }

    /// The share of the program's time, in percent, that hardware watchpoints may take; 0.5 if not
    /// called.
    #[must_use]
    pub const fn watch_budget(mut self, percent: f64) -> Self {
        self.what.options.watch_budget = percent;
        self
    }

    /// Whether the processes that the program starts are observed too.
    #[must_use]
    pub const fn follow_children(mut self, follow: bool) -> Self {
        self.what.follow_children = follow;
        self
    }

    /// What a finding must cost at least, in percent of the threads' time, to count as significant
    /// in reports; 1 if not called.
    #[must_use]
    pub const fn threshold(mut self, percent: f64) -> Self {
        self.what.threshold = Some(percent);
        self
    }

    /// Runs the command to its end.
    ///
    /// # Errors
    /// If it can't be executed, or the observer that was asked for is not to be had.
    pub fn run(&self) -> Result<Detected> {
        let observed = if self.what.observer == Observer::Isolate {
            sunder_protect::observer::observe(&self.what, self.sampled)
        } else {
            sunder_live::observe(&self.what)
        };
        let (findings, exit) = observed?;
        Ok(Detected { findings, exit })
    }
}

/// Observes a running process for a while, without stopping it and without loading anything into
/// it. Heap objects have no call stacks then.
///
/// ```no_run
/// use std::time::Duration;
/// let findings = sunder::Attach::new(4242).duration(Duration::from_secs(30)).run()?;
/// # Ok::<(), sunder::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Attach {
    process: ProcessId,
    duration: Duration,
    options: ObserveOptions,
    threshold: Option<f64>,
}

impl Attach {
    /// The process of this number, for ten seconds.
    pub fn new(process: u32) -> Self {
        Self {
            process: ProcessId(process),
            duration: Duration::from_secs(10),
            options: ObserveOptions::default(),
            threshold: None,
        }
    }

    /// How long, unless the process ends before.
    #[must_use]
    pub const fn duration(mut self, duration: Duration) -> Self {
        self.duration = duration;
        self
    }

    /// See [`Detect::frequency`].
    #[must_use]
    pub const fn frequency(mut self, hertz: u32) -> Self {
        self.options.frequency = Some(hertz);
        self
    }

    /// See [`Detect::threshold`].
    #[must_use]
    pub const fn threshold(mut self, percent: f64) -> Self {
        self.threshold = Some(percent);
        self
    }

    /// Observes until the time is over or the process ends.
    ///
    /// # Errors
    /// If there is no such process, or we may not observe it.
    pub fn run(&self) -> Result<Findings> {
        sunder_live::is_program(self.process)?;
        let mut look = Look::begin(self.process, &self.options, self.threshold, Ending::InTime)?;
        look.go_on(Some(self.duration), &mut |_| true)?;
        Ok(look.finish())
    }
}
