//! `sunder patch`: prints a diff that carries the advice of a result out, or tries it.

use crate::args::Patch;
use crate::destination::{Destination, print};
use crate::output::note;
use crate::status;
use anyhow::{Context, Result};
use std::ffi::OsString;
use std::path::Path;
use sunder_findings::{Findings, Shown};
use sunder_patch::{
    Edits, Gone, Options, Proposal, Proposals, Spelling, Trial, Tried, Way, attempt, best, propose,
};

/// Runs the command. Returns the exit status.
///
/// # Errors
/// If the result or the folder with the sources can't be used.
pub fn run(options: &Patch) -> Result<u8> {
    if options.build.is_none() {
        crate::confined::to_files();
    }
    let findings = Findings::open(&options.file)
        .with_context(|| format!("cannot read {}", options.file.display()))?;
    let wanted = Options {
        root: options.root.clone(),
        ranks: options.finding.clone(),
        spelling: if options.attributes {
            Spelling::Attribute
        } else {
            Spelling::Keyword
        },
    };
    let proposals = propose(&findings, &wanted)?;
    match (&options.build, &options.run) {
        (Some(build), Some(run)) => {
            let fix = Destination::new(&options.output)?;
            let trial = Trial {
                build: build.clone(),
                run: run.clone(),
                check: options.check.clone(),
                time: options.time,
                limit: options.limit,
                detect: detect()?,
            };
            let about: String = proposals.list.iter().map(|p| about(p, None)).collect();
            print(&about)?;
            let tried = attempt(&findings, &wanted, &trial, &|what| {
                note(&Shown(what).to_string())
            })?;
            conclude(&proposals, &tried, &fix, &options.output)
        }
        _ => tell(&findings, &proposals),
    }
}

/// How to observe a command, but for the file and the command.
fn detect() -> Result<Vec<OsString>> {
    let own = std::env::current_exe().context("cannot find this program's own file")?;
    let mut command: Vec<OsString> = vec![own.into()];
    let arguments = [
        "detect",
        "--quiet",
        "--no-measure",
        "--follow-children",
        "--format",
        "json",
        "-o",
    ];
    command.extend(arguments.map(OsString::from));
    Ok(command)
}

/// Prints what was found out about each change, and writes the best.
fn conclude(proposals: &Proposals, tried: &[Tried], fix: &Destination, path: &Path) -> Result<u8> {
    let mut text = String::new();
    for (one, number) in tried.iter().zip(1..) {
        text.push_str(&row(one, number));
    }
    let status = match best(tried) {
        Some(best) => {
            fix.write(&proposals.diff(&best.edits))?;
            let root = proposals.root().display().to_string();
            let path = path.display().to_string();
            let (path, root) = (Shown(&path).to_string(), Shown(&root).to_string());
            text.push_str(&to_apply(best, &path, &root));
            0
        }
        None if tried.iter().any(Tried::could_not_tell) || tried.is_empty() => {
            text.push_str("Whether a patch helps is not known; none was written.\n");
            status::INCONCLUSIVE
        }
        None => {
            text.push_str("No patch helped; none was written.\n");
            status::FOUND
        }
    };
    print(&text)?;
    Ok(status)
}

/// What the best change, which is in the file `path`, is good for, and how to apply it.
fn to_apply(best: &Tried, path: &str, root: &str) -> String {
    if best.is_faster() {
        format!("The best is in {path}: apply it with `patch -p1` in {root}\n")
    } else {
        format!(
            "The patch in {path} removes the sharing, but no gain was measured: it can be applied with \
             `patch -p1` in {root}\n"
        )
    }
}

/// What was found out about one change.
fn row(tried: &Tried, number: usize) -> String {
    let yes_or = |answer: &Result<(), String>| match answer {
        Ok(()) => "yes".to_owned(),
        Err(why) => {
            let lines: Vec<String> = why.lines().map(|l| Shown(l).to_string()).collect();
            format!("no: {}", lines.join("\n                "))
        }
    };
    let mut lines = vec![format!("{number}. {}", Shown(&tried.what.join("; ")))];
    let mut add = |what: &str, answer: String| lines.push(format!("   {what:<12} {answer}"));
    add("compiles", yes_or(&tried.compiles));
    if let Some(same) = &tried.same_output {
        add("output equal", yes_or(same));
    }
    match &tried.gone {
        Some(Gone::Yes) => add("finding gone", "yes".to_owned()),
        Some(Gone::No(still)) => {
            let still: Vec<String> = still.iter().map(|s| Shown(s).to_string()).collect();
            add("finding gone", format!("no: {}", still.join(", ")));
        }
        Some(Gone::Unknown(why)) => add("finding gone", format!("not known: {}", Shown(why))),
        None => {}
    }
    if let Some(gain) = &tried.gain {
        let certain = if gain.is_certain() {
            ""
        } else {
            "; not certain"
        };
        add(
            "gain",
            format!(
                "{:.2} times as fast ({:.2} to {:.2}: 99 % interval of {} pairs of runs, in turns{certain})",
                gain.times, gain.least, gain.most, gain.pairs
            ),
        );
    }
    match tried.grows_by {
        Some(bytes) => add("bytes", format!("+{bytes}")),
        None => add("bytes", "not known".to_owned()),
    }
    lines.join("\n") + "\n"
}

/// Prints the diff of the best ways, with what they do.
fn tell(findings: &Findings, proposals: &Proposals) -> Result<u8> {
    if proposals.list.is_empty() {
        let answer = findings.answer(findings.run.threshold_percent);
        if !answer.reasons.is_empty() {
            let why: Vec<String> = answer.reasons.iter().map(ToString::to_string).collect();
            print(&format!(
                "# Not known whether there is false sharing: {}.\n",
                why.join("; ")
            ))?;
            return Ok(status::INCONCLUSIVE);
        }
        print("# The result has no false sharing above its threshold.\n")?;
        return Ok(0);
    }
    let (edits, left): (Edits, _) = proposals.best();
    let mut text = String::new();
    for proposal in &proposals.list {
        let clash = left.iter().find(|(rank, _)| *rank == proposal.rank);
        text.push_str(&about(proposal, clash.map(|(_, why)| why.0.as_str())));
    }
    if !edits.is_empty() {
        let root = proposals.root().display().to_string();
        text.push_str(&format!("# Apply with `patch -p1` in {}\n", Shown(&root)));
        text.push_str(&proposals.diff(&edits));
    }
    print(&text)?;
    Ok(if edits.is_empty() {
        status::INCONCLUSIVE
    } else {
        0
    })
}

/// What is done about a finding: lines that begin with `#`.
fn about(proposal: &Proposal, clash: Option<&str>) -> String {
    let mut lines = vec![format!("#{} {}", proposal.rank, Shown(&proposal.subject))];
    let first = proposal.ways.as_ref().map(|ways| ways.first());
    match (first, clash) {
        (Ok(Some(way)), None) => {
            lines.push(format!("{}{}", Shown(&way.what), growth(way)));
            lines.extend(
                way.notes
                    .iter()
                    .map(|note| format!("Note: {}.", Shown(note))),
            );
        }
        (Err(why), _) => lines.push(format!("No patch: {}.", Shown(&why.0))),
        (_, why) => lines.push(format!(
            "No patch: {}.",
            Shown(why.unwrap_or("there is no change"))
        )),
    }
    if first.is_err() || clash.is_some() {
        let advice = proposal.advice.iter();
        lines.extend(advice.map(|text| format!("Advice: {}", Shown(text))));
    }
    lines.iter().map(|line| format!("# {line}\n")).collect()
}

fn growth(way: &Way) -> String {
    match way.grows_by {
        Some(bytes) => format!(" [+{bytes} bytes]"),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sunder_patch::Gain;

    /// A patch without a gain is not called the best.
    #[test]
    fn a_patch_without_a_measured_gain_is_told_as_such() {
        let tried = |pairs: &[[f64; 2]]| Tried {
            what: Vec::new(),
            edits: Edits::default(),
            grows_by: None,
            compiles: Ok(()),
            same_output: Some(Ok(())),
            gone: Some(Gone::Yes),
            gain: Gain::of(pairs),
        };
        let faster = to_apply(&tried(&[[2.0, 1.0]; 5]), "fix.diff", "/src");
        let best = "The best is in fix.diff: apply it with `patch -p1` in /src\n";
        assert_eq!(faster, best);
        for same in [&[[1.0, 1.1], [1.1, 1.0], [1.0, 1.0]][..], &[]] {
            let said = to_apply(&tried(same), "fix.diff", "/src");
            assert!(
                said.contains("removes the sharing, but no gain was measured"),
                "{said}"
            );
        }
    }
}
