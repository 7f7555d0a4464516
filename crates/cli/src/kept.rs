//! Recordings of runs: where `--record` writes, what is told of it, and how `sunder report` judges
//! one again.

use crate::args::Report;
use crate::destination::Destination;
use crate::output::{complain, note};
use crate::usage::wrong;
use anyhow::{Context, Result};
use std::fs::File;
use std::path::Path;
use sunder_findings::Findings;
use sunder_gain::Measured;
use sunder_pipeline::rejudge;
use sunder_recording::Recorder;

/// A recording that is being written.
#[derive(Debug)]
pub struct Recording<'a> {
    path: &'a Path,
    recorder: Recorder,
}

impl<'a> Recording<'a> {
    /// Opens `path`, if there is to be a recording. Call it before rights are given up.
    ///
    /// # Errors
    /// If it can't be written, or is no regular file.
    pub fn begin(path: Option<&'a Path>) -> Result<Option<Self>> {
        let Some(path) = path else { return Ok(None) };
        if path == Path::new("-") {
            return Err(wrong("--record needs the name of a file"));
        }
        let cannot = || format!("cannot write {}", path.display());
        // The tool would wait for whoever reads a pipe, and the program's samples be lost.
        let is_other = std::fs::metadata(path).is_ok_and(|about| !about.is_file());
        anyhow::ensure!(!is_other, "{}: it is no regular file", cannot());
        drop(Destination::new(path)?);
        let file = File::create(path).with_context(cannot)?;
        let recorder = Recorder::begin(file).with_context(cannot)?;
        Ok(Some(Self { path, recorder }))
    }

    /// Where the events go.
    pub fn recorder(&self) -> Recorder {
        self.recorder.clone()
    }

    /// Says what came of it, if that is to be said. Returns whether it is complete.
    pub fn tell(&self, quiet: bool) -> bool {
        let (outcome, path) = (self.recorder.outcome(), self.path.display());
        if let Some(why) = outcome.failed {
            complain(&anyhow::anyhow!("{path} is not complete: {why}"));
            return false;
        }
        if !quiet {
            let kib = outcome.bytes.div_ceil(1024);
            note(&format!(
                "{} samples are in {path} ({kib} KiB); sunder report {path} judges them again",
                outcome.samples
            ));
        }
        true
    }
}

/// The result of the run in `file`, judged as the options say.
///
/// # Errors
/// If it is damaged.
pub fn result(file: &File, options: &Report) -> Result<Findings> {
    let judged = rejudge(file, options.line_size, options.tell.threshold)?;
    let mut findings = judged.findings;
    if let Some(measured) = judged.measured {
        Measured::kept(&measured)?.fill(&mut findings);
    }
    Ok(findings)
}
