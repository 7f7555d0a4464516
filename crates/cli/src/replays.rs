//! `sunder simulate` and `sunder what-if`: replay a trace and report the result as every other.

use crate::args::{Simulate, WhatIf};
use crate::output::Output;
use crate::saved::confined_output;
use crate::status;
use anyhow::Result;
use sunder_findings::Findings;

/// `sunder simulate`. Returns the exit status.
///
/// # Errors
/// If the trace can't be read, or such a machine can't be.
pub fn simulate(options: &Simulate) -> Result<u8> {
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

fn write(output: &Output, result: &Findings) -> u8 {
    let written = output.write(result);
    match output.verdict(result) {
        Some(found) => found,
        None if written.failed => status::FAILED,
        None => 0,
    }
}
