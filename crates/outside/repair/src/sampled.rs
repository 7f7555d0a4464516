//! Since when samples alone speak for lines that would be worth a move, and whether that is long enough to
//! believe them. Called by `choose`. Pure.

use std::collections::HashMap;
use std::time::Duration;
use sunder_access::{Address, Time};

/// After this long, samples alone are believed. A move that was a mistake is noticed by its lack of gain.
const UNCONFIRMED: Duration = Duration::from_millis(400);
/// The same for lines of more threads than CPUs: they take turns, and two of them seldom run while their
/// line is watched.
const TAKING_TURNS: Duration = Duration::from_millis(150);

/// Lines for which enough samples speak, each with the time of the first look that found it so.
#[derive(Debug, Default)]
pub struct Sampled {
    since: HashMap<Address, Time>,
}

impl Sampled {
    /// Takes in the lines of the present look. Others are forgotten.
    pub fn look(&mut self, lines: impl Iterator<Item = Address>, now: Time) {
        let since = lines.map(|line| (line, self.since.get(&line).copied().unwrap_or(now)));
        self.since = since.collect();
    }

    /// Since when samples have spoken for the line in all looks.
    pub fn since(&self, line: Address) -> Option<Time> {
        self.since.get(&line).copied()
    }

    /// Whether samples have spoken for the line in all looks for long enough. `take_turns`: more threads
    /// use it than there are CPUs.
    pub fn is_believed(&self, line: Address, take_turns: bool, now: Time) -> bool {
        let long = if take_turns {
            TAKING_TURNS
        } else {
            UNCONFIRMED
        };
        let since = self.since.get(&line);
        since.is_some_and(|&since| now.since(since) >= long)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_believed_once_all_looks_of_some_time_have_found_it() {
        let (line, other) = (Address(0x1000), Address(0x1040));
        let (start, mut sampled) = (Time(5), Sampled::default());
        let after = |ms| start.after(Duration::from_millis(ms));
        sampled.look([line].into_iter(), start);
        sampled.look([line, other].into_iter(), after(399));
        assert!(!sampled.is_believed(line, false, after(399)));
        assert!(
            sampled.is_believed(line, true, after(399)),
            "its threads take turns"
        );
        assert!(!sampled.is_believed(other, true, after(399)));
        sampled.look([line, other].into_iter(), after(400));
        assert!(sampled.is_believed(line, false, after(400)));
        assert!(
            !sampled.is_believed(other, false, after(400)),
            "it came later"
        );
        // A look without the line begins its time anew.
        sampled.look([other].into_iter(), after(410));
        sampled.look([line, other].into_iter(), after(420));
        assert!(!sampled.is_believed(line, false, after(800)));
        assert!(sampled.is_believed(other, false, after(800)));
    }
}
