//! Decisions about moving bytes while the program runs (Plastic, EuroSys 2013, section 4.4):
//! which bytes of contended lines go to lines of their own, and how often. Called by `repair`.
//! Pure.

mod elements;
mod groups;
mod widen;

pub use elements::whole_elements;
pub use groups::{Count, Group, Grouping, Unmoved, Use, apart_by, groups};
pub use widen::{Extent, widen};

/// Why moved bytes were put back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndReason {
    /// Their threads made no faster progress.
    NoGain,
    /// Something needed the bytes at their original place.
    Hindered,
    /// The bytes can't be moved at all.
    Impossible,
}

/// A stay: the time from moving bytes to putting them back.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stay {
    /// The number of threads that use the bytes.
    pub threads: usize,
    /// The threads' progress divided by that before the move; `None` if it was not measured.
    pub gain: Option<f64>,
    /// The length of the stay, in ns.
    pub lasted_ns: u64,
    /// The time that moving, putting back and faults took, in ns.
    pub cost_ns: u64,
    /// Why it ended.
    pub ended: EndReason,
}

impl Stay {
    /// Whether it gained more time than it cost.
    fn paid(&self) -> bool {
        let share = self.gain.map_or(0.0, |gain| 1.0 - 1.0 / gain);
        self.threads as f64 * self.lasted_ns as f64 * share > self.cost_ns as f64
    }
}

/// The most stays of the same bytes.
const MOST_STAYS: usize = 16;
/// After this many stays in a row that did not pay, the bytes are not moved again.
const MOST_UNPAID: usize = 3;
/// After this many stays that were measured to gain nothing, the bytes are not moved again.
const MOST_WITHOUT_GAIN: usize = 3;
/// The pause after bytes were needed at their original place, in ns; it doubles each time.
const AFTER_HINDRANCE_NS: u64 = 50_000_000;
/// The pause after a stay that gained nothing, in ns; it doubles each time.
const AFTER_NO_GAIN_NS: u64 = 5_000_000_000;
/// The longest pause, in ns.
const LONGEST_PAUSE_NS: u64 = 60_000_000_000;

/// The pause after the last of `stays` before its bytes may be moved again, in ns; `None` if
/// they may not.
pub fn pause(stays: &[Stay]) -> Option<u64> {
    let last = stays.last()?;
    let count = |ended| stays.iter().filter(|s| s.ended == ended).count();
    let unpaid = stays.iter().rev().take_while(|s| !s.paid()).count();
    if stays.len() >= MOST_STAYS || unpaid >= MOST_UNPAID {
        return None;
    }
    let (first, times) = match last.ended {
        EndReason::Impossible => return None,
        EndReason::NoGain if count(EndReason::NoGain) >= MOST_WITHOUT_GAIN => return None,
        EndReason::NoGain => (AFTER_NO_GAIN_NS, count(EndReason::NoGain)),
        EndReason::Hindered => (AFTER_HINDRANCE_NS, count(EndReason::Hindered)),
    };
    Some((first << (times - 1)).min(LONGEST_PAUSE_NS))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stay(gain: Option<f64>, lasted_ns: u64, ended: EndReason) -> Stay {
        Stay {
            threads: 2,
            gain,
            lasted_ns,
            cost_ns: 1_000_000,
            ended,
        }
    }

    #[test]
    fn pauses_double_while_staying_pays() {
        // Two threads save half a second each, far more than the cost of a millisecond.
        let good = stay(Some(2.0), 1_000_000_000, EndReason::Hindered);
        let pauses: Vec<_> = (1..=4).map(|n| pause(&vec![good; n])).collect();
        let first = pauses[0].expect("a pause, not the end");
        assert_eq!(pauses[1..], [2, 4, 8].map(|n| Some(n * first)));
        assert_eq!(pause(&[good; MOST_STAYS]), None);
    }

    #[test]
    fn a_move_that_costs_more_than_it_gains_is_ended() {
        // Two threads save half of 0.1 ms each.
        let short = stay(Some(2.0), 100_000, EndReason::Hindered);
        let unknown = stay(None, 1_000_000_000, EndReason::Hindered);
        let good = stay(Some(2.0), 1_000_000_000, EndReason::Hindered);
        assert!(pause(&[short, short]).is_some());
        assert_eq!(pause(&[short, unknown, short]), None);
        assert!(pause(&[short, short, good]).is_some());
        assert!(pause(&[short, short, good, short]).is_some());
    }

    #[test]
    fn a_move_without_gain_pauses_long_and_an_impossible_one_ends() {
        let bad = stay(Some(1.0), 50_000_000, EndReason::NoGain);
        let hindered = stay(Some(2.0), 1_000_000_000, EndReason::Hindered);
        assert!(pause(&[bad]) > pause(&[hindered]).map(|p| 50 * p));
        assert_eq!(
            pause(&[hindered, stay(Some(2.0), 1, EndReason::Impossible)]),
            None
        );
        assert_eq!(pause(&[]), None);
    }
}
