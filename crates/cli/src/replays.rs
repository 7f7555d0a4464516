//! `sunder simulate` and `sunder what-if`: replays of a trace, told of as every result is.

use crate::args::{Simulate, WhatIf};
use crate::output::Output;
use crate::status;
use anyhow::Result;
use sunder_findings::Findings;

/// `sunder simulate`; the value is the status to exit with.
///
/// # Errors
/// If there is no such trace, or no such machine.
pub fn simulate(options: &Simulate) -> Result<u8> {
    let output = Output::new(&options.tell, true)?;
    let result = sunder_replay::simulate::simulate(&options.into())?;
    Ok(tell(&output, &result))
}

/// `sunder what-if`; the value is the status to exit with.
///
/// # Errors
/// If there is no such trace, or no such machine.
pub fn what_if(options: &WhatIf) -> Result<u8> {
    let output = Output::new(&options.tell, true)?;
    let result = sunder_replay::what_if::what_if(&options.into())?;
    Ok(tell(&output, &result))
}

fn tell(output: &Output, result: &Findings) -> u8 {
    let written = output.write(result);
    match output.verdict(result) {
        Some(found) => found,
        None if written.failed => status::FAILED,
        None => 0,
    }
}
