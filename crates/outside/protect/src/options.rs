//! What the caller of this crate asks for.

use anyhow::{Context, Result};
use std::ffi::OsString;
use std::path::PathBuf;
use sunder_live::{Begun, Observation, ObserveOptions, ObserverChoice, Show};
use sunder_observe::launch::Launch;

/// What to protect, and how.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The program and its arguments.
    pub program: Vec<OsString>,
    /// A saved result that names what is isolated from the beginning; then the program is not
    /// observed.
    pub from: Option<PathBuf>,
    /// Isolate every page that two threads write (SHERIFF, section 5).
    pub eager: bool,
    /// Isolate only objects of which no byte was ever seen used by two threads, not even to set it
    /// up.
    pub strict: bool,
    /// Isolate the pages of these global variables, whatever a result says of them.
    pub isolate_global: Vec<String>,
    /// Microseconds between two looks at threads, and between two commits; episodes then may be of
    /// any length. `None` for the defaults.
    pub every: Option<u32>,
    /// Let isolated threads execute any code.
    pub any_code: bool,
    /// Which observer takes the samples.
    pub observer: ObserverChoice,
    /// How it takes them.
    pub observe: ObserveOptions,
    /// Where to write what isolated threads commit ([`crate::commits::format`]): a file, which is
    /// made or emptied, or a pipe.
    pub commits: Option<PathBuf>,
    /// As [`sunder_live::Observation::begun`].
    pub begun: Option<Begun>,
    /// As [`sunder_live::Observation::show`].
    pub show: Option<Show>,
}

impl Options {
    /// How the program is observed.
    pub(crate) fn observation(&self) -> Observation {
        Observation {
            program: self.program.clone(),
            observer: self.observer,
            options: self.observe,
            follow_children: false,
            threshold: None,
            begun: self.begun,
            show: self.show,
            recorder: None,
        }
    }

    /// The program, to be launched.
    ///
    /// # Errors
    /// If no program was given.
    pub(crate) fn launch(&self) -> Result<Launch> {
        let (name, arguments) = self.program.split_first().context("no program was given")?;
        Ok(Launch::new(name.clone()).arguments(arguments.to_vec()))
    }
}
