//! Tries changes in copies of the user's folder: builds them, compares their output with the
//! original's, times both in turns, and looks whether the finding is gone. The user's own folder
//! is only read.

mod command;
mod copy;
mod pairs;

pub use pairs::Gain;

use crate::edit::Edits;
use crate::error::PatchError;
use crate::{Options, Proposals, Spelling, propose};
use command::{Ended, run, shell};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use sunder_findings::{Answer, Findings, Sharing, compare};

/// A folder with more bytes is worth a word before it is copied.
const LARGE: u64 = 1 << 30;

/// How to build and run the program.
#[derive(Clone, Debug)]
pub struct Trial {
    /// Builds it, in its folder.
    pub build: String,
    /// Runs it.
    pub run: String,
    /// Succeeds if what it computes is right. Without it, output and exit status of the original
    /// and the changed program must be the same.
    pub check: Option<String>,
    /// Most time for the pairs of one change.
    pub time: Duration,
    /// Most time for one command.
    pub limit: Duration,
    /// The program and arguments that observe a command and write the result as JSON to the file
    /// that follows; then `--` and the command follow.
    pub detect: Vec<OsString>,
}

/// What became of a finding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Gone {
    /// It was not found again.
    Yes,
    /// These were found again, above the threshold. From outside: display them cleaned.
    No(Vec<String>),
    /// The run would not have shown it, or could not be observed.
    Unknown(String),
}

/// What was found out about one change.
#[derive(Clone, Debug)]
pub struct Tried {
    /// What the change does, for each finding.
    pub what: Vec<String>,
    /// The change.
    pub edits: Edits,
    /// By how many bytes the data grow, where known.
    pub grows_by: Option<u64>,
    /// What failed first, if anything did: the build, the run or the comparison of the output.
    pub compiles: Result<(), String>,
    /// Whether the output is that of the original, or the check succeeds; if it was built.
    pub same_output: Option<Result<(), String>>,
    /// Whether the findings are gone; if the output is right.
    pub gone: Option<Gone>,
    /// How many times as fast it is; if the output is right.
    pub gain: Option<Gain>,
}

impl Tried {
    /// Whether it is worth having: right, and without the sharing or certainly faster.
    pub fn helps(&self) -> bool {
        let slower = self.gain.is_some_and(|g| g.is_certain() && g.most < 1.0);
        let right = matches!(self.same_output, Some(Ok(())));
        right && !slower && (self.is_faster() || self.gone == Some(Gone::Yes))
    }

    /// Whether it is certainly faster.
    pub fn is_faster(&self) -> bool {
        self.gain.is_some_and(|g| g.is_certain() && g.least > 1.0)
    }

    /// Whether it is right, and neither the times nor the observation say whether it helps.
    pub fn could_not_tell(&self) -> bool {
        let unknown = matches!(self.gone, Some(Gone::Unknown(_)));
        matches!(self.same_output, Some(Ok(()))) && unknown && !self.helps()
    }
}

/// The change to take: of those that are certainly faster the fastest, else of those that remove the
/// sharing. `None` if none helps.
pub fn best(tried: &[Tried]) -> Option<&Tried> {
    let speed = |one: &Tried| one.gain.map_or(0.0, |g| g.times);
    let helpful = tried.iter().filter(|one| one.helps());
    helpful.max_by(|a, b| {
        let faster = a.is_faster().cmp(&b.is_faster());
        faster.then(speed(a).total_cmp(&speed(b)))
    })
}

/// A change to be tried.
struct Candidate {
    what: Vec<String>,
    edits: Edits,
    grows_by: Option<u64>,
    spelling: Spelling,
}

/// A copy of the folder, and files beside it.
struct Copy {
    folder: PathBuf,
    scratch: PathBuf,
}

/// Tries all ways of the proposals, in their order. `tell` is given what is being done.
///
/// # Errors
/// If the folder can't be copied, or the original can't be built and run.
pub fn attempt(
    findings: &Findings,
    options: &Options,
    trial: &Trial,
    tell: &dyn Fn(&str),
) -> Result<Vec<Tried>, PatchError> {
    let proposals = propose(findings, options)?;
    let all = candidates(&proposals, options.spelling);
    if all.is_empty() {
        return Ok(Vec::new());
    }
    let place = tempfile::tempdir().map_err(|source| PatchError::File {
        path: std::env::temp_dir(),
        source,
    })?;
    let original = copied(&proposals, place.path(), "original", tell)?;
    let expected = baseline(trial, &original, tell)?;
    let mut tried = Vec::new();
    for (number, candidate) in all.into_iter().enumerate() {
        let mut candidate = candidate;
        let mut name = format!("changed-{}", number + 1);
        loop {
            tell(&format!("trying: {}", candidate.what.join("; ")));
            let changed = copied(&proposals, place.path(), &name, tell)?;
            let outcome = try_one(
                trial,
                findings,
                &proposals,
                &candidate,
                [&original, &changed],
                &expected,
            )?;
            let _ = std::fs::remove_dir_all(&changed.folder);
            // C++ before C++11 knows no `alignas`.
            let other = (outcome.compiles.is_err() && candidate.spelling == Spelling::Keyword)
                .then(|| respelled(findings, options, number))
                .transpose()?
                .flatten();
            match other {
                Some(again) => {
                    candidate = again;
                    name.push_str("-attributes");
                }
                None => {
                    tried.push(outcome);
                    break;
                }
            }
        }
    }
    Ok(tried)
}

/// The same candidate with attributes in place of keywords.
fn respelled(
    findings: &Findings,
    options: &Options,
    number: usize,
) -> Result<Option<Candidate>, PatchError> {
    let options = Options {
        spelling: Spelling::Attribute,
        ..options.clone()
    };
    let proposals = propose(findings, &options)?;
    Ok(candidates(&proposals, Spelling::Attribute)
        .into_iter()
        .nth(number))
}

/// The best ways of all findings together; then, for each finding, its other ways in place of its
/// best.
fn candidates(proposals: &Proposals, spelling: Spelling) -> Vec<Candidate> {
    let ways: Vec<_> = proposals
        .list
        .iter()
        .filter_map(|p| p.ways.as_ref().ok())
        .collect();
    let together = |chosen: &dyn Fn(usize) -> usize| {
        let mut made = Candidate {
            what: Vec::new(),
            edits: Edits::default(),
            grows_by: Some(0),
            spelling,
        };
        for (i, of_one) in ways.iter().enumerate() {
            if let Some(way) = of_one.get(chosen(i))
                && made.edits.merge(&way.edits).is_ok()
                && !made.what.contains(&way.what)
            {
                made.what.push(way.what.clone());
                made.grows_by = made
                    .grows_by
                    .zip(way.grows_by)
                    .map(|(a, b)| a.saturating_add(b));
            }
        }
        made
    };
    let mut all = vec![together(&|_| 0)];
    for (i, of_one) in ways.iter().enumerate() {
        for other in 1..of_one.len() {
            all.push(together(&|at| if at == i { other } else { 0 }));
        }
    }
    all.retain(|candidate| !candidate.edits.is_empty());
    all
}

fn copied(
    proposals: &Proposals,
    place: &Path,
    name: &str,
    tell: &dyn Fn(&str),
) -> Result<Copy, PatchError> {
    let root = proposals.root();
    let scratch = place.join(format!("{name}.output"));
    std::fs::create_dir_all(&scratch).map_err(|source| PatchError::File {
        path: scratch.clone(),
        source,
    })?;
    // The folder keeps its name, which a build may use.
    let folder = place.join(name).join(root.file_name().unwrap_or_default());
    let copied = copy::folder(root, &folder)?;
    if name == "original" {
        if copied.bytes > LARGE {
            tell(&format!(
                "each copy of {} takes {} MB",
                root.display(),
                copied.bytes >> 20
            ));
        }
        if copied.has_cmake_cache {
            tell(
                "a build folder of CMake names the original folder: let --build make a new one in the copy",
            );
        }
    }
    Ok(Copy { folder, scratch })
}

/// What the original prints.
struct Expected {
    output: Vec<u8>,
    code: Option<i32>,
}

impl Trial {
    fn build(&self, copy: &Copy) -> Result<Option<String>, PatchError> {
        let ended = run(&shell(&self.build), &copy.folder, &copy.scratch, self.limit)?;
        Ok(ended.failure(&format!("`{}`", self.build), self.limit))
    }

    fn run(&self, copy: &Copy) -> Result<Ended, PatchError> {
        run(&shell(&self.run), &copy.folder, &copy.scratch, self.limit)
    }

    /// Why the output is not right.
    fn is_wrong(
        &self,
        copy: &Copy,
        ended: &Ended,
        expected: &Expected,
    ) -> Result<Option<String>, PatchError> {
        if ended.timed_out {
            return Ok(ended.failure(&format!("`{}`", self.run), self.limit));
        }
        if let Some(check) = &self.check {
            let checked = run(&shell(check), &copy.folder, &copy.scratch, self.limit)?;
            return Ok(checked.failure(&format!("`{check}`"), self.limit));
        }
        Ok(if ended.status.code() != expected.code {
            Some(
                ended
                    .failure(&format!("`{}`", self.run), self.limit)
                    .unwrap_or_else(|| "it succeeds now".into()),
            )
        } else if ended.output != expected.output {
            Some("it prints something else".to_owned())
        } else {
            None
        })
    }
}

/// Builds and runs the original twice: what differs there says nothing about a change.
fn baseline(trial: &Trial, original: &Copy, tell: &dyn Fn(&str)) -> Result<Expected, PatchError> {
    tell(&format!("building the original: {}", trial.build));
    if let Some(why) = trial.build(original)? {
        return Err(PatchError::Baseline(why));
    }
    let first = trial.run(original)?;
    let expected = Expected {
        code: first.status.code(),
        output: first.output.clone(),
    };
    let second = trial.run(original)?;
    match trial.is_wrong(original, &second, &expected)? {
        None => Ok(expected),
        Some(why) if trial.check.is_some() || second.timed_out => Err(PatchError::Baseline(why)),
        Some(_) => Err(PatchError::Baseline(
            "two runs do not print the same: say with --check how to tell whether a run is right"
                .into(),
        )),
    }
}

fn try_one(
    trial: &Trial,
    findings: &Findings,
    proposals: &Proposals,
    candidate: &Candidate,
    [original, changed]: [&Copy; 2],
    expected: &Expected,
) -> Result<Tried, PatchError> {
    let mut tried = Tried {
        what: candidate.what.clone(),
        edits: candidate.edits.clone(),
        grows_by: candidate.grows_by,
        compiles: Ok(()),
        same_output: None,
        gone: None,
        gain: None,
    };
    for (file, text) in proposals.changed(&candidate.edits) {
        let path = changed.folder.join(file);
        std::fs::write(&path, text).map_err(|source| PatchError::File { path, source })?;
    }
    if let Some(why) = trial.build(changed)? {
        tried.compiles = Err(why);
        return Ok(tried);
    }
    let first = trial.run(changed)?;
    if let Some(why) = trial.is_wrong(changed, &first, expected)? {
        tried.same_output = Some(Err(why));
        return Ok(tried);
    }
    tried.same_output = Some(Ok(()));
    tried.gone = Some(gone(trial, findings, proposals, changed)?);
    let began = Instant::now();
    let mut times: Vec<[f64; 2]> = Vec::new();
    loop {
        // Each is first as often as the other.
        let first = times.len() % 2;
        let mut pair = [0.0; 2];
        for which in [first, 1 - first] {
            let copy = [original, changed][which];
            let ended = trial.run(copy)?;
            let wrong = trial.check.is_none()
                && (ended.output != expected.output || ended.status.code() != expected.code);
            if ended.timed_out || (which == 1 && wrong) {
                tried.same_output = Some(Err("a later run prints something else".to_owned()));
                return Ok(tried);
            }
            pair[which] = ended.took.as_secs_f64();
        }
        times.push(pair);
        tried.gain = Gain::of(&times);
        if tried.gain.is_some_and(|gain| gain.is_enough()) || began.elapsed() >= trial.time {
            return Ok(tried);
        }
    }
}

/// Observes the changed program, and looks for the findings that were to be mended.
fn gone(
    trial: &Trial,
    old: &Findings,
    proposals: &Proposals,
    changed: &Copy,
) -> Result<Gone, PatchError> {
    let file = changed.scratch.join("result.json");
    let mut command = trial.detect.clone();
    command.push(file.clone().into());
    command.push("--".into());
    command.extend(shell(&trial.run));
    let ended = run(
        &command,
        &changed.folder,
        &changed.scratch,
        trial.limit.saturating_mul(2),
    )?;
    let new = match Findings::open(&file) {
        Ok(new) => new,
        Err(why) => {
            return Ok(Gone::Unknown(
                format!("{why} {}", ended.complaint).trim().to_owned(),
            ));
        }
    };
    let mended = proposals.list.iter().filter(|p| p.ways.is_ok());
    let ranks: Vec<u32> = mended.map(|p| p.rank).collect();
    let still = again(old, &new, &ranks);
    if !still.is_empty() {
        return Ok(Gone::No(still));
    }
    let verdict = new.answer(new.run.threshold_percent);
    Ok(match verdict.answer {
        Answer::Inconclusive => {
            Gone::Unknown("the run was too short, or its threads seldom ran at once".into())
        }
        _ => Gone::Yes,
    })
}

/// The findings of these ranks that are in the new result, too, above the threshold.
fn again(old: &Findings, new: &Findings, ranks: &[u32]) -> Vec<String> {
    let threshold = old.run.threshold_percent;
    let comparison = compare(old, new);
    let lists = [&comparison.unchanged, &comparison.grew, &comparison.shrank];
    let mut still: Vec<String> = lists
        .into_iter()
        .flatten()
        .filter(|c| {
            c.old.is_some_and(|o| ranks.contains(&o.rank))
                && !c.latent
                && c.sharing != Sharing::True
        })
        .filter(|c| c.new.is_some_and(|n| n.cost_percent >= threshold))
        .map(|c| c.subject.clone())
        .collect();
    // A change of a type changes a finding's identity; its name stays.
    for before in old.findings.iter().filter(|f| ranks.contains(&f.rank)) {
        let same = |o: &sunder_findings::Object| {
            o.kind == before.object.kind && o.name == before.object.name
        };
        let named = before.object.name.is_some();
        for after in new
            .significant(threshold)
            .filter(|f| f.sharing != Sharing::True)
        {
            let subject = after.subject();
            if named && same(&after.object) && !still.contains(&subject) {
                still.push(subject);
            }
        }
    }
    still
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tried(gone: Gone, pairs: &[[f64; 2]]) -> Tried {
        Tried {
            what: Vec::new(),
            edits: Edits::default(),
            grows_by: None,
            compiles: Ok(()),
            same_output: Some(Ok(())),
            gone: Some(gone),
            gain: Gain::of(pairs),
        }
    }

    /// Two ways remove the sharing; chance has one of them look faster than the one that is.
    #[test]
    fn a_certain_gain_comes_before_one_that_may_be_chance() {
        let chance = tried(Gone::Yes, &[[9.0, 1.0], [1.0, 1.5]]);
        let faster = tried(Gone::Yes, &[[2.0, 1.0]; 5]);
        let slower = tried(Gone::Yes, &[[1.0, 2.0]; 5]);
        assert!(chance.helps() && !chance.is_faster());
        assert!(faster.is_faster() && !slower.helps());
        assert_eq!(
            best(&[chance.clone(), slower.clone()]).and_then(|t| t.gain),
            chance.gain
        );
        let all = [faster.clone(), chance, slower];
        assert_eq!(best(&all).and_then(|t| t.gain), faster.gain);
        assert!(best(&[]).is_none());
    }
}
