//! From a finding to a change of the source that carries its advice out: a unified diff for C, C++
//! and Rust, and a trial that says whether it compiles, keeps the output, ends the false sharing
//! and pays.
//!
//! Called by the program `sunder`, for `sunder patch`. It must not print, must not change the
//! user's own files (a trial works on copies), and must make no change that it is not sure of: then
//! it says why, and the advice in words is all there is.
#![forbid(unsafe_code)]

mod c;
mod edit;
mod error;
mod macros;
mod rust;
mod shape;
mod sources;
mod stale;
mod trial;
mod way;

pub use c::spelling::Spelling;
pub use edit::Edits;
pub use error::{PatchError, Unsure};
pub use trial::{Gain, Gone, Trial, Tried, attempt, best};
pub use way::Way;

use c::carry::Carry;
use sources::Sources;
use std::path::{Path, PathBuf};
use sunder_findings::{Finding, Findings, Sharing};

/// Bytes of a line if the result does not say.
const LINE: u32 = 64;

/// Which findings to patch, and where their sources are.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The folder with the sources; without it, the current folder, or the one that the debug
    /// information names.
    pub root: Option<PathBuf>,
    /// The ranks of the findings; if empty, all false sharing above the result's threshold.
    pub ranks: Vec<u32>,
    /// How alignment is written.
    pub spelling: Spelling,
}

/// What can be done about one finding.
#[derive(Clone, Debug)]
pub struct Proposal {
    /// The finding's rank.
    pub rank: u32,
    /// What is shared, in a few words. From outside: display it cleaned.
    pub subject: String,
    /// The advice in words, the best first.
    pub advice: Vec<String>,
    /// Changes that are certain to do what they say, the best first; or why there is none.
    pub ways: Result<Vec<Way>, Unsure>,
}

/// What can be done about a result.
pub struct Proposals {
    sources: Sources,
    /// One for each finding, in the order of the result.
    pub list: Vec<Proposal>,
}

/// What can be done about the findings of a result.
///
/// # Errors
/// If the folder with the sources can't be used.
pub fn propose(findings: &Findings, options: &Options) -> Result<Proposals, PatchError> {
    let wanted: Vec<&Finding> = if options.ranks.is_empty() {
        let of_interest = findings.significant(findings.run.threshold_percent);
        of_interest.filter(|f| f.sharing != Sharing::True).collect()
    } else {
        let chosen = |f: &&Finding| options.ranks.contains(&f.rank);
        findings.findings.iter().filter(chosen).collect()
    };
    let root = match &options.root {
        Some(root) => root.clone(),
        None => root_of(&wanted),
    };
    let sources = Sources::below(&root)?;
    let line = match findings.machine.line_size {
        0 => LINE,
        size => size,
    };
    let list = wanted
        .into_iter()
        .map(|finding| Proposal {
            rank: finding.rank,
            subject: finding.subject(),
            advice: finding.advice.iter().map(|a| a.text.clone()).collect(),
            ways: ways(&sources, finding, line, options.spelling),
        })
        .collect();
    Ok(Proposals { sources, list })
}

fn ways(
    sources: &Sources,
    finding: &Finding,
    line: u32,
    spelling: Spelling,
) -> Result<Vec<Way>, Unsure> {
    let ways = ways_seen(sources, finding, line, spelling);
    // From a part of the sources, a reason may be as wrong as a change.
    sources.all_seen()?;
    ways
}

/// As [`ways`], from the sources that were seen.
fn ways_seen(
    sources: &Sources,
    finding: &Finding,
    line: u32,
    spelling: Spelling,
) -> Result<Vec<Way>, Unsure> {
    stale::check(sources, finding)?;
    if let Some(file) = language_file(finding)
        && file.ends_with(".rs")
    {
        return rust::ways(sources, finding, line);
    }
    let carry = Carry {
        sources,
        finding,
        line,
        spelling,
    };
    carry.ways()
}

/// The file that declares, allocates or touches the object.
fn language_file(finding: &Finding) -> Option<&str> {
    let declared = finding.object.declared.iter().map(|d| d.file.as_str());
    let frames = finding.object.allocation.iter().filter(|f| !f.is_library());
    let frames = frames.filter_map(|f| f.file.as_deref());
    let sites = finding.sites.iter().filter_map(|s| s.file.as_deref());
    declared.chain(frames).chain(sites).next()
}

/// The current folder if it has the sources of a finding, else the folder in which they were when
/// the program was built.
fn root_of(findings: &[&Finding]) -> PathBuf {
    let here = std::env::current_dir().unwrap_or_else(|_| PathBuf::from("."));
    let files = || findings.iter().filter_map(|f| language_file(f));
    let is_here = Sources::below(&here).is_ok_and(|s| files().any(|f| s.locate(f).is_ok()));
    if is_here {
        return here;
    }
    let there = files()
        .map(Path::new)
        .find(|f| f.is_absolute() && f.is_file());
    there.and_then(Path::parent).map_or(here, Path::to_owned)
}

impl Proposals {
    /// The folder below which the paths of the diffs are.
    pub fn root(&self) -> &Path {
        self.sources.root()
    }

    /// The best changes of all findings together, with what can't be merged: the rank of its
    /// finding, and why.
    pub fn best(&self) -> (Edits, Vec<(u32, Unsure)>) {
        let mut all = Edits::default();
        let mut left = Vec::new();
        for proposal in &self.list {
            let first = proposal.ways.as_ref().ok().and_then(|ways| ways.first());
            if let Some(way) = first
                && let Err(why) = all.merge(&way.edits)
            {
                left.push((proposal.rank, why));
            }
        }
        (all, left)
    }

    /// The unified diff of changes, which `patch -p1` takes in the root folder.
    pub fn diff(&self, edits: &Edits) -> String {
        let mut told = String::new();
        for file in edits.files() {
            if let Ok(old) = self.sources.text(file) {
                told.push_str(&edit::unified(file, &old, &edits.applied(file, &old)));
            }
        }
        told
    }

    /// The changed files, by their paths below the root, with their new texts.
    pub fn changed(&self, edits: &Edits) -> Vec<(PathBuf, String)> {
        let text = |file: &Path| {
            Some((
                file.to_owned(),
                edits.applied(file, &self.sources.text(file).ok()?),
            ))
        };
        edits.files().filter_map(text).collect()
    }
}
