//! Runs a program once and measures it. Called by every benchmark; knows
//! nothing of what is compared.

use anyhow::{Context, Result};
use std::io::Read;
use std::process::{Command, Stdio};
use std::time::Instant;

/// What one run took and gave.
#[derive(Clone, Debug, PartialEq)]
pub struct Measurement {
    /// Seconds from start to exit.
    pub wall: f64,
    /// User and system seconds of the program and everything that it waited for.
    pub cpu: f64,
    /// The largest resident set of the program or of any process that it waited
    /// for, in KiB.
    pub peak_kib: u64,
    /// The raw wait status.
    pub status: i32,
    /// What it wrote to standard output.
    pub stdout: Vec<u8>,
}

/// Runs `command` with no input, keeping its standard output.
///
/// # Errors
/// If it can't be started or waited for.
pub fn run(command: &mut Command) -> Result<Measurement> {
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let start = Instant::now();
    let mut child = command
        .spawn()
        .with_context(|| format!("cannot start {command:?}"))?;
    let mut stdout = Vec::new();
    child
        .stdout
        .take()
        .context("standard output was piped")?
        .read_to_end(&mut stdout)?;
    let pid = i32::try_from(child.id())?;
    let mut status = 0;
    // SAFETY: `rusage` is plain data for which all zeroes is a valid value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are to live locals; `pid` is our unreaped child,
    // which nobody else waits for.
    let reaped = unsafe { libc::wait4(pid, &mut status, 0, &mut usage) };
    anyhow::ensure!(reaped == pid, "cannot wait for {command:?}");
    let seconds = |t: libc::timeval| t.tv_sec as f64 + t.tv_usec as f64 / 1e6;
    Ok(Measurement {
        wall: start.elapsed().as_secs_f64(),
        cpu: seconds(usage.ru_utime) + seconds(usage.ru_stime),
        peak_kib: u64::try_from(usage.ru_maxrss).unwrap_or(0),
        status,
        stdout,
    })
}

/// The median; 0 of nothing.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => 0.0,
        n if n % 2 == 1 => sorted[n / 2],
        n => (sorted[n / 2 - 1] + sorted[n / 2]) / 2.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_even_number_lies_between_the_middle_two() {
        assert_eq!(median(&[4.0, 1.0, 3.0, 2.0]), 2.5);
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[]), 0.0);
    }

    #[test]
    fn a_run_keeps_output_and_status() {
        let seen = run(Command::new("sh").args(["-c", "echo hi; exit 3"])).expect("sh runs");
        assert_eq!(seen.stdout, b"hi\n");
        assert_eq!(libc::WEXITSTATUS(seen.status), 3);
        assert!(seen.wall > 0.0 && seen.peak_kib > 0);
    }
}
