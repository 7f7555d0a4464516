//! The line that says how far a recording has come, while the program runs. Only on
//! a terminal; what it says comes from the first bytes of the file.

use crate::observers;
use anyhow::Result;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::fs::File;
use std::io::IsTerminal;
use std::os::unix::fs::FileExt;
use std::time::Duration;
use sunder_observe::launch::Child;
use sunder_trace::meta::{PREFIX_BYTES, Progress};

/// How often the line is written anew.
const EVERY: Duration = Duration::from_millis(200);

/// Shows the line until the program has ended.
///
/// # Errors
/// If somebody else has waited for it.
pub fn show(child: &mut Child, file: &File) -> Result<()> {
    if !std::io::stderr().is_terminal() {
        return Ok(());
    }
    let line = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
    line.set_style(ProgressStyle::with_template("sunder: {elapsed}, {msg}")?);
    let pidfd = observers::pidfd(child.pid());
    while child.try_wait()?.is_none() {
        // Without one it sleeps.
        observers::wait_end(&pidfd, EVERY);
        if let Some(progress) = read(file) {
            line.set_message(text(&progress));
        }
    }
    line.finish_and_clear();
    Ok(())
}

fn read(file: &File) -> Option<Progress> {
    let mut prefix = [0; PREFIX_BYTES];
    file.read_exact_at(&mut prefix, 0).ok()?;
    Progress::from_prefix(&prefix)
}

fn text(progress: &Progress) -> String {
    let events = progress.accesses + progress.others;
    format!(
        "{:.1} million events, {:.1} MB, {} threads",
        events as f64 / 1e6,
        progress.bytes as f64 / 1e6,
        progress.threads
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_counts_events_bytes_and_threads() {
        let progress = Progress {
            accesses: 12_000_000,
            others: 345_000,
            bytes: 6_700_000,
            threads: 9,
            ..Progress::default()
        };
        assert_eq!(text(&progress), "12.3 million events, 6.7 MB, 9 threads");
    }
}
