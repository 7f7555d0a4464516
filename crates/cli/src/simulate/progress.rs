//! The line that says how far the replays of a trace have come, on a terminal.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::cell::Cell;
use std::io::IsTerminal;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;
use sunder_trace::read::Trace;

/// All readings of a trace for one command.
#[derive(Debug)]
pub struct Progress {
    is_shown: bool,
    begun: Instant,
    readings: AtomicU32,
}

impl Progress {
    /// Nothing was read yet; nothing is shown if `quiet`.
    pub fn new(quiet: bool) -> Self {
        Self {
            is_shown: !quiet && std::io::stderr().is_terminal(),
            begun: Instant::now(),
            readings: AtomicU32::new(0),
        }
    }

    /// The trace is read once more.
    pub fn reading(&self, trace: &Trace) -> Reading {
        let number = self.readings.fetch_add(1, Ordering::Relaxed) + 1;
        let target = match self.is_shown {
            true => ProgressDrawTarget::stderr(),
            false => ProgressDrawTarget::hidden(),
        };
        let events = trace.threads().iter().map(|thread| thread.events).sum();
        let line = ProgressBar::with_draw_target(Some(events), target)
            .with_elapsed(self.begun.elapsed())
            .with_message(format!("reading the trace for the {}", ordinal(number)));
        let style = ProgressStyle::with_template("sunder: {elapsed}, {msg} time, {percent} %");
        if let Ok(style) = style {
            line.set_style(style);
        }
        Reading {
            line,
            unsaid: Cell::new(0),
        }
    }
}

/// One reading; the line goes when it ends.
#[derive(Debug)]
pub struct Reading {
    line: ProgressBar,
    unsaid: Cell<usize>,
}

/// The line is told of so many events at once: it asks for the time each time.
const SAID: usize = 1 << 20;

impl Reading {
    /// So many more events were read.
    pub fn add(&self, events: usize) {
        let unsaid = self.unsaid.get() + events;
        if unsaid < SAID {
            return self.unsaid.set(unsaid);
        }
        self.unsaid.set(0);
        self.line.inc(unsaid as u64);
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        self.line.finish_and_clear();
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
}
