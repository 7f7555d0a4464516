//! Lines that showed no contention while they were watched. They are watched again, after
//! pauses that grow. Used by the loop in `watching`; it must not arm a watchpoint itself.

use std::collections::HashMap;
use std::time::Duration;
use sunder_access::{Address, ProcessId};
use sunder_sharing::Suspect;

/// A line that was quiet in this many bursts more than it was loud is left alone for a while.
/// Its threads may not have run at the same time just then, but may do so later.
const QUIET_ENOUGH: u32 = 3;
/// The first pause; it doubles after each further quiet burst.
const QUIET_PAUSE: Duration = Duration::from_millis(250);
/// The longest pause, so that a line is watched in each phase of a long run.
const LONGEST_QUIET_PAUSE: Duration = Duration::from_secs(16);
/// The most lines whose pauses are remembered.
const MOST_QUIET: usize = 1024;

/// The times, since the beginning of the observation, until which quiet lines are left alone.
#[derive(Debug, Default)]
pub struct Quiet(HashMap<(ProcessId, Address), Duration>);

impl Quiet {
    /// Whether the line may be watched at `now`, counted from the beginning of the observation.
    pub fn is_over(&self, process: ProcessId, suspect: &Suspect, now: Duration) -> bool {
        too_quiet(suspect).is_none()
            || self
                .0
                .get(&(process, suspect.line))
                .is_none_or(|until| *until <= now)
    }

    /// Notes that a burst is asked for. Whether it was made, and what it found, shows in the
    /// next suspect's counts.
    pub fn burst_requested(&mut self, process: ProcessId, suspect: &Suspect, now: Duration) {
        // The pause is set before the burst whose quiet result would begin it.
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

/// How many quiet bursts there were beyond the number that begins a pause; `None` below that.
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

    /// A burst that found a thread off its CPU says nothing about later bursts.
    #[test]
    fn a_quiet_line_is_watched_again_after_growing_pauses() {
        let (process, mut quiet) = (ProcessId(1), Quiet::default());
        let at = Duration::from_millis;
        let mut now = at(0);
        let mut requested = Vec::new();
        let mut bursts = 0;
        while now < at(60_000) {
            let line = suspect(bursts, 0);
            if quiet.is_over(process, &line, now) {
                quiet.burst_requested(process, &line, now);
                requested.push(now.as_millis());
                bursts += 1;
            }
            now += at(25);
        }
        let expected = [0, 25, 50, 300, 800, 1800, 3800, 7800, 15800, 31800, 47800];
        assert_eq!(requested, expected);
        // Another process has pauses of its own, and a line that was loud is not delayed.
        assert!(quiet.is_over(ProcessId(2), &suspect(bursts, 0), now));
        assert!(quiet.is_over(process, &suspect(bursts, bursts), at(47_900)));
        assert!(!quiet.is_over(process, &suspect(bursts, 0), at(47_900)));
    }
}
