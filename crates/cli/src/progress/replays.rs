//! The lines on a terminal that show the progress of a replay or a recording.

use super::bottom::Line;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;
use std::sync::Arc;
use std::time::Instant;
use sunder_replay::{Advance, NoProgress, Progress};
use sunder_trace::meta::Progress as Recorded;

/// Shows a line for each reading of a trace; nothing if `quiet`, or if there is no terminal.
pub fn of_replays(quiet: bool) -> Arc<dyn Progress> {
    if quiet || !std::io::stderr().is_terminal() {
        return Arc::new(NoProgress);
    }
    Arc::new(Replays {
        begun: Instant::now(),
    })
}

struct Replays {
    begun: Instant,
}

impl Progress for Replays {
    fn reading(&self, number: u32, events: u64) -> Box<dyn Advance> {
        let line = ProgressBar::with_draw_target(Some(events), ProgressDrawTarget::stderr())
            .with_elapsed(self.begun.elapsed())
            .with_message(format!("reading the trace for the {}", ordinal(number)));
        let style = ProgressStyle::with_template("sunder: {elapsed}, {msg} time, {percent} %");
        if let Ok(style) = style {
            line.set_style(style);
        }
        Box::new(OfReading(line))
    }
}

/// The line of one reading. It is removed when the reading ends.
struct OfReading(ProgressBar);

impl Advance for OfReading {
    fn add(&self, events: u64) {
        self.0.inc(events);
    }
}

impl Drop for OfReading {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

fn ordinal(number: u32) -> String {
    let ending = match (number % 10, number % 100) {
        (1, rest) if rest != 11 => "st",
        (2, rest) if rest != 12 => "nd",
        (3, rest) if rest != 13 => "rd",
        _ => "th",
    };
    format!("{number}{ending}")
}

/// The line of a recording. The recorded program writes to the same terminal.
pub struct OfRecording {
    begun: Instant,
    line: Line,
}

impl OfRecording {
    /// The line is shown until the value is dropped. `None` if there is no terminal.
    pub fn begin() -> Option<Self> {
        let line = Line::begin()?;
        let begun = Instant::now();
        Some(Self { begun, line })
    }

    /// Shows how far the recording has come.
    pub fn show(&self, progress: &Recorded) {
        let elapsed = self.begun.elapsed();
        let seconds = elapsed.as_secs();
        let text = format!("sunder: {seconds} s, {}", text(progress));
        self.line.draw(elapsed, &text);
    }
}

fn text(progress: &Recorded) -> String {
    let events = progress.accesses + progress.others;
    format!(
        "{:.1} million events, {:.1} MB, {} thread{}",
        events as f64 / 1e6,
        progress.bytes as f64 / 1e6,
        progress.threads,
        if progress.threads == 1 { "" } else { "s" }
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readings_are_counted_in_words_that_people_use() {
        let all = [1, 2, 3, 4, 11, 12, 13, 21, 102, 111].map(ordinal);
        let wanted = [
            "1st", "2nd", "3rd", "4th", "11th", "12th", "13th", "21st", "102nd", "111th",
        ];
        assert_eq!(all, wanted);
    }

    #[test]
    fn the_line_counts_events_bytes_and_threads() {
        let progress = Recorded {
            accesses: 12_000_000,
            others: 345_000,
            bytes: 6_700_000,
            threads: 9,
            ..Recorded::default()
        };
        assert_eq!(text(&progress), "12.3 million events, 6.7 MB, 9 threads");
    }
}
