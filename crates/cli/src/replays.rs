//! `sunder simulate`, `sunder what-if` and `sunder merge`: replay a trace, whole or in parts, and
//! report the result as every other.

use crate::args::{Format, Merge, Simulate, WhatIf};
use crate::confined;
use crate::destination::Destination;
use crate::output::Output;
use crate::saved::confined_output;
use crate::status;
use crate::usage::wrong;
use anyhow::{Context, Result};
use std::path::Path;
use sunder_findings::Findings;
use sunder_replay::parts::{self, Part};
use sunder_tables::Disorder;

/// `sunder simulate`. Returns the exit status.
///
/// # Errors
/// If the trace can't be read, or such a machine can't be.
pub fn simulate(options: &Simulate) -> Result<u8> {
    if options.files.iter().any(|file| file.is_dir()) {
        return buckets(options);
    }
    if let [_, second, ..] = options.files.as_slice() {
        return Err(wrong(format!(
            "only one trace can be replayed at a time: leave {} away (of the folders of an export, several can)",
            second.display()
        )));
    }
    if options.sort {
        return Err(wrong(
            "--sort is for folders of an export: a trace is in order, so leave it away",
        ));
    }
    let output = confined_output(&options.tell)?;
    let result = sunder_replay::simulate::simulate(&options.into())?;
    Ok(write(&output, &result))
}

/// `sunder what-if`. Returns the exit status.
///
/// # Errors
/// If the trace can't be read, or such a machine can't be.
pub fn what_if(options: &WhatIf) -> Result<u8> {
    let output = confined_output(&options.tell)?;
    let result = sunder_replay::what_if::what_if(&options.into())?;
    Ok(write(&output, &result))
}

/// `sunder simulate` of buckets.
fn buckets(options: &Simulate) -> Result<u8> {
    let tell = &options.tell;
    let other = tell.format.iter().any(|&format| format != Format::Json);
    if other || tell.output.len() > 1 {
        return Err(wrong(
            "what buckets are replayed to is JSON for sunder merge: give one -o FILE, or none for standard \
             output, and no other --format",
        ));
    }
    let path = tell
        .output
        .first()
        .map_or(Path::new("-"), |path| path.as_path());
    let mut to = Destination::new(path)?;
    to.hold()?;
    confined::to_files();
    let disorder = match options.sort {
        true => Disorder::Sort,
        false => Disorder::Refuse,
    };
    let order = options.order.map(Into::into);
    let part = parts::replay(&options.into(), &options.files, order, disorder)?;
    to.write(&part.to_json()?)?;
    Ok(0)
}

/// `sunder merge`. Returns the exit status.
///
/// # Errors
/// If a part can't be read, or they are not all parts of one trace.
pub fn merge(options: &Merge) -> Result<u8> {
    let output = confined_output(&options.tell)?;
    let mut all: Option<Part> = None;
    for path in &options.parts {
        let part = Part::open(path)?;
        match &mut all {
            Some(all) => {
                let cannot = || format!("{} can't be merged with the others", path.display());
                all.join(part).with_context(cannot)?;
            }
            None => all = Some(part),
        }
    }
    let whole = all.context("no part was given")?;
    let result = parts::merge(whole, &options.into())?;
    Ok(write(&output, &result))
}

fn write(output: &Output, result: &Findings) -> u8 {
    let written = output.write(result);
    match output.verdict(result) {
        Some(found) => found,
        None if written.failed => status::FAILED,
        None => 0,
    }
}
