//! Running a command with a remedy against false sharing. Each does nothing where it is in doubt,
//! and its outcome says why.

use crate::{Findings, Result};
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitStatus;
use sunder_live::NoNotices;
pub use sunder_place::Placement;

/// Runs a command and gives each thread what it shares falsely for itself while it computes.
/// Programs whose threads hand such data over by plain loads and stores alone must not be run so.
///
/// ```no_run
/// let done = sunder::Protect::new("./bench").run()?;
/// println!("{}", done.line.unwrap_or_default());
/// # Ok::<(), sunder::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Protect(sunder_protect::Options);

/// A command that was protected.
#[derive(Clone, Debug)]
pub struct Protected {
    /// How it ended.
    pub exit: ExitStatus,
    /// What was done, in a sentence.
    pub line: Option<String>,
    /// What was done, as JSON.
    pub report: Option<String>,
}

impl Protect {
    /// A program, looked for in `PATH` if its name has no slash.
    pub fn new(program: impl Into<OsString>) -> Self {
        Self(sunder_protect::Options {
            program: vec![program.into()],
            ..sunder_protect::Options::default()
        })
    }

    /// More arguments of the program.
    #[must_use]
    pub fn args<A: Into<OsString>>(mut self, arguments: impl IntoIterator<Item = A>) -> Self {
        self.0.program.extend(arguments.into_iter().map(Into::into));
        self
    }

    /// Isolates what this saved result names from the beginning, and watches for nothing else.
    #[must_use]
    pub fn with_result(mut self, file: impl Into<PathBuf>) -> Self {
        self.0.from = Some(file.into());
        self
    }

    /// Writes which bytes each thread changed, commit by commit, to this file or named pipe while the
    /// command runs. [`crate::commits::Reader`] reads it.
    #[must_use]
    pub fn with_commits(mut self, file: impl Into<PathBuf>) -> Self {
        self.0.commits = Some(file.into());
        self
    }

    /// Isolates whatever two threads write, where small objects are, whether or not it costs
    /// anything (SHERIFF, section 5).
    #[must_use]
    pub fn eager(mut self) -> Self {
        self.0.eager = true;
        self
    }

    /// Runs the command to its end.
    ///
    /// # Errors
    /// If it can't be executed, or the result can't be read.
    pub fn run(&self) -> Result<Protected> {
        let done = sunder_protect::run(&self.0, &NoNotices)?;
        Ok(Protected {
            exit: done.exit,
            line: done.line,
            report: done.report,
        })
    }
}

/// Runs a command and moves falsely shared bytes to lines of their own while it runs.
///
/// ```no_run
/// let done = sunder::Repair::new("./bench").run()?;
/// for moved in done.findings.repair.iter().flat_map(|repair| &repair.moved) {
///     println!("{}: {:.0} ms", moved.object, moved.at_seconds * 1e3);
/// }
/// # Ok::<(), sunder::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Repair(sunder_repair::Options);

/// A command that was repaired.
#[derive(Clone, Debug)]
pub struct Repaired {
    /// How it ended.
    pub exit: ExitStatus,
    /// What was found, with what was done in its `repair`.
    pub findings: Findings,
    /// What was done, a sentence each.
    pub lines: Vec<String>,
}

impl Repair {
    /// A program, looked for in `PATH` if its name has no slash.
    pub fn new(program: impl Into<OsString>) -> Self {
        Self(sunder_repair::Options {
            program: vec![program.into()],
            ..sunder_repair::Options::default()
        })
    }

    /// More arguments of the program.
    #[must_use]
    pub fn args<A: Into<OsString>>(mut self, arguments: impl IntoIterator<Item = A>) -> Self {
        self.0.program.extend(arguments.into_iter().map(Into::into));
        self
    }

    /// Moves what this saved result names as soon as threads contend for it.
    #[must_use]
    pub fn with_result(mut self, file: impl Into<PathBuf>) -> Self {
        self.0.from = Some(file.into());
        self
    }

    /// Whether the processes that the program starts are repaired too, as long as it runs. Only [`Repaired::lines`]
    /// tells of them.
    #[must_use]
    pub const fn follow_children(mut self, follow: bool) -> Self {
        self.0.follow_children = follow;
        self
    }

    /// Whether it is only said what would be moved.
    #[must_use]
    pub const fn dry_run(mut self, only_say: bool) -> Self {
        self.0.dry_run = only_say;
        self
    }

    /// Runs the command to its end.
    ///
    /// # Errors
    /// If it can't be executed, or the result can't be read.
    pub fn run(&self) -> Result<Repaired> {
        let done = sunder_repair::run(&self.0)?;
        Ok(Repaired {
            exit: done.exit,
            findings: done.findings,
            lines: done.lines,
        })
    }
}

/// Runs a command and takes falsely shared data apart while it runs, each object by the remedy that
/// fits: moved as by [`Repair`], or isolated as by [`Protect`]. Heap blocks that are allocated later get
/// cache lines of their own where blocks from the same calls shared lines falsely.
///
/// ```no_run
/// let first = sunder::Cure::new("./bench").run()?;
/// sunder::save(&first.findings, "plan.json")?;
/// let next = sunder::Cure::new("./bench").with_plan("plan.json").run()?;
/// # Ok::<(), sunder::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Cure(sunder_cure::Options);

/// A command that was cured.
#[derive(Clone, Debug)]
pub struct Cured {
    /// How it ended.
    pub exit: ExitStatus,
    /// What was found, with what was done in its `repair` and `cure`. Saved, it is a plan.
    pub findings: Findings,
    /// What was done, a sentence each.
    pub lines: Vec<String>,
}

impl Cure {
    /// A program, looked for in `PATH` if its name has no slash.
    pub fn new(program: impl Into<OsString>) -> Self {
        Self(sunder_cure::Options {
            program: vec![program.into()],
            ..sunder_cure::Options::default()
        })
    }

    /// More arguments of the program.
    #[must_use]
    pub fn args<A: Into<OsString>>(mut self, arguments: impl IntoIterator<Item = A>) -> Self {
        self.0.program.extend(arguments.into_iter().map(Into::into));
        self
    }

    /// Follows the plan of an earlier run: nothing is tried that did not help then, and blocks get lines of
    /// their own from the first allocation on.
    #[must_use]
    pub fn with_plan(mut self, file: impl Into<PathBuf>) -> Self {
        self.0.plan = Some(file.into());
        self
    }

    /// Runs the command to its end.
    ///
    /// # Errors
    /// If it can't be executed, or the plan can't be read.
    pub fn run(&self) -> Result<Cured> {
        let done = sunder_cure::run(&self.0)?;
        Ok(Cured {
            exit: done.exit,
            findings: done.findings,
            lines: done.lines,
        })
    }
}

/// Runs a command with our allocator in place of its own, which keeps objects apart.
///
/// ```no_run
/// use sunder::Placement;
/// let exit = sunder::Place::new("./bench", Placement::Hoard).run()?;
/// # Ok::<(), sunder::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Place(sunder_place::Options);

impl Place {
    /// A program, looked for in `PATH` if its name has no slash, and how objects are placed.
    pub fn new(program: impl Into<OsString>, placement: Placement) -> Self {
        Self(sunder_place::Options {
            program: vec![program.into()],
            placement,
            fix: None,
            begun: None,
        })
    }

    /// More arguments of the program.
    #[must_use]
    pub fn args<A: Into<OsString>>(mut self, arguments: impl IntoIterator<Item = A>) -> Self {
        self.0.program.extend(arguments.into_iter().map(Into::into));
        self
    }

    /// Gives the heap objects of this saved result lines of their own.
    #[must_use]
    pub fn fix(mut self, file: impl Into<PathBuf>) -> Self {
        self.0.fix = Some(file.into());
        self
    }

    /// Runs the command to its end; how it ended. Only for a process with one thread.
    ///
    /// # Errors
    /// If it can't be executed or given another allocator, or the result can't be read.
    pub fn run(&self) -> Result<ExitStatus> {
        Ok(sunder_place::run(&self.0, &NoNotices)?)
    }
}
