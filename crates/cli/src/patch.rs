//! `sunder patch`: prints a diff that carries the advice of a result out, or tries it.

use crate::args::Patch;
use crate::destination::print;
use crate::status;
use anyhow::{Context, Result};
use sunder_findings::{Findings, Shown};
use sunder_patch::{Edits, Options, Proposal, Proposals, Spelling, Way, propose};

/// Runs the command. Returns the exit status.
///
/// # Errors
/// If the result or the folder with the sources can't be used.
pub fn run(options: &Patch) -> Result<u8> {
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
    tell(&proposals)
}

/// Prints the diff of the best ways, with what they do.
fn tell(proposals: &Proposals) -> Result<u8> {
    if proposals.list.is_empty() {
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
