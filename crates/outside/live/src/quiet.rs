//! Lines that stayed quiet while they were watched: they are watched again, after pauses that
//! grow. Used by the loop of `watching`; it must not arm anything itself.

use std::collections::HashMap;
use std::time::Duration;
use sunder_access::{Address, ProcessId};
use sunder_sharing::Suspect;

/// A line that stays quiet in so many bursts is left alone for a while: its threads may not have
/// run side by side just then, or do so later.
const QUIET_ENOUGH: u32 = 3;
/// For how long at first; twice as long after each further quiet burst.
const QUIET_PAUSE: Duration = Duration::from_millis(250);
/// And at most, so that a line is looked at in each phase of a long run.
const LONGEST_QUIET_PAUSE: Duration = Duration::from_secs(16);
/// Lines whose pauses are remembered.
const MOST_QUIET: usize = 1024;

/// Pauses of lines that were quiet: until when.
#[derive(Debug, Default)]
pub struct Quiet(HashMap<(ProcessId, Address), Duration>);

impl Quiet {
    /// Whether a burst may be asked for, at `now` from the beginning.
    pub fn is_over(&self, process: ProcessId, suspect: &Suspect, now: Duration) -> bool {
        too_quiet(suspect).is_none()
            || self
                .0
                .get(&(process, suspect.line))
                .is_none_or(|until| *until <= now)
    }

    /// One is asked for. Whether it is made, and loud, is seen by the next.
    pub fn asked(&mut self, process: ProcessId, suspect: &Suspect, now: Duration) {
        // Before the burst that may be the last for a while.
        let further = match too_quiet(suspect) {
            Some(further) => further + 1,
            None if suspect.quiet_bursts + 1 >= QUIET_ENOUGH + suspect.loud_bursts => 0,
            None => return,
        };
        if self.0.len() >= MOST_QUIET {
            self.0.retain(|_, until| *until > now);
        }
        let pause = QUIET_PAUSE.saturating_mul(1u32.checked_shl(further).unwrap_or(u32::MAX));
        let until = now + pause.min(LONGEST_QUIET_PAUSE);
        self.0.insert((process, suspect.line), until);
    }
}

/// By how many bursts a line was quieter than is enough, if it was.
fn too_quiet(suspect: &Suspect) -> Option<u32> {
    suspect
        .quiet_bursts
        .checked_sub(QUIET_ENOUGH + suspect.loud_bursts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use sunder_access::Time;

    fn suspect(quiet: u32, loud: u32) -> Suspect {
        Suspect {
            line: Address(0x1000),
            since: Time(0),
            words: Vec::new(),
            threads: Vec::new(),
            cost_ns: 0.0,
            cost_share: 1.0,
            confirmed: false,
            loud_bursts: loud,
            quiet_bursts: quiet,
        }
    }

    /// Bursts that found a thread off its CPU say nothing of what comes later.
    #[test]
    fn a_quiet_line_is_asked_again_after_pauses_that_grow() {
        let (process, mut quiet) = (ProcessId(1), Quiet::default());
        let at = Duration::from_millis;
        let mut now = at(0);
        let mut asked = Vec::new();
        let mut bursts = 0;
        while now < at(60_000) {
            let line = suspect(bursts, 0);
            if quiet.is_over(process, &line, now) {
                quiet.asked(process, &line, now);
                asked.push(now.as_millis());
                bursts += 1;
            }
            now += at(25);
        }
        let expected = [0, 25, 50, 300, 800, 1800, 3800, 7800, 15800, 31800, 47800];
        assert_eq!(asked, expected);
        // Of another process nothing is known, and one that is loud need not wait.
        assert!(quiet.is_over(ProcessId(2), &suspect(bursts, 0), now));
        assert!(quiet.is_over(process, &suspect(bursts, bursts), at(47_900)));
        assert!(!quiet.is_over(process, &suspect(bursts, 0), at(47_900)));
    }
}
