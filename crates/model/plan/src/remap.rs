//! Decisions about moving bytes while the program runs (Plastic, EuroSys 2013, section 4.4):
//! which bytes of contended lines go to lines of their own, and how often. Called by `repair`.
//! Pure.

mod elements;
mod groups;
mod widen;

pub use elements::whole_elements;
pub use groups::{Count, Group, Grouping, Unmoved, Use, apart_by, groups};
pub use widen::{Extent, widen};

use crate::progress::WORTH_KEEPING;

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

    /// Whether threads got on as before. Then the contention was over for a while, or costs nothing, and a
    /// further try costs little more than the moves themselves.
    fn is_neutral(&self) -> bool {
        let chance = 1.0 / WORTH_KEEPING..WORTH_KEEPING;
        self.ended == EndReason::NoGain && self.gain.is_some_and(|gain| chance.contains(&gain))
    }

    /// Whether threads gained, but for one that lost.
    fn is_mixed(&self) -> bool {
        self.ended == EndReason::NoGain && self.gain.is_some_and(|gain| gain >= WORTH_KEEPING)
    }
}

/// The most stays of the same bytes.
const MOST_STAYS: usize = 16;
/// After this many stays in a row that did not pay, the bytes are not moved again. Those in which threads
/// got on as before are not among them.
const MOST_UNPAID: usize = 3;
/// After this many stays by which threads were measured to lose, the bytes are not moved again.
const MOST_LOSSES: usize = 3;
/// The same for stays in which they got on as before.
const MOST_NEUTRAL: usize = 5;
/// The pause after bytes were needed at their original place, in ns; it doubles each time.
const AFTER_HINDRANCE_NS: u64 = 50_000_000;
/// The pause after a stay by which threads lost, in ns; it doubles each time.
const AFTER_LOSS_NS: u64 = 5_000_000_000;
/// The pause after the first stay in which threads gained, but for one that lost, in ns. Where threads
/// take turns on CPUs, it may have had no rival in the time before, with which it was compared.
const AFTER_MIXED_NS: u64 = 100_000_000;
/// The pause after a stay in which they got on as before, in ns; it doubles each time. The two CPUs of a
/// virtual machine may be one core's for some seconds, and then no line moves between them.
const AFTER_NEUTRAL_NS: u64 = 1_000_000_000;
/// The longest pause, in ns.
const LONGEST_PAUSE_NS: u64 = 60_000_000_000;

/// The pause after the last of `stays` before its bytes may be moved again, in ns; `None` if
/// they may not.
pub fn pause(stays: &[Stay]) -> Option<u64> {
    let last = stays.last()?;
    let count = |is: &dyn Fn(&Stay) -> bool| stays.iter().filter(|stay| is(stay)).count();
    let neutral = count(&Stay::is_neutral);
    let mixed = count(&Stay::is_mixed);
    let losses = count(&|stay| stay.ended == EndReason::NoGain) - neutral - mixed.min(1);
    let decisive = stays.iter().rev().filter(|stay| !stay.is_neutral());
    let unpaid = decisive.take_while(|stay| !stay.paid()).count();
    if stays.len() >= MOST_STAYS || unpaid >= MOST_UNPAID {
        return None;
    }
    let (first, times) = match last.ended {
        EndReason::Impossible => return None,
        EndReason::NoGain if neutral >= MOST_NEUTRAL || losses >= MOST_LOSSES => return None,
        EndReason::NoGain if last.is_neutral() => (AFTER_NEUTRAL_NS, neutral),
        EndReason::NoGain if last.is_mixed() && mixed == 1 => (AFTER_MIXED_NS, 1),
        EndReason::NoGain => (AFTER_LOSS_NS, losses),
        EndReason::Hindered => {
            let hindered = count(&|stay| stay.ended == EndReason::Hindered);
            (AFTER_HINDRANCE_NS, hindered)
        }
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
    fn a_move_by_which_threads_lose_pauses_long_and_an_impossible_one_ends() {
        let hindered = stay(Some(2.0), 1_000_000_000, EndReason::Hindered);
        let loss = stay(Some(0.8), 50_000_000, EndReason::NoGain);
        let pauses = [1, 2, 3].map(|n| pause(&vec![loss; n]));
        assert_eq!(pauses, [Some(5_000_000_000), Some(10_000_000_000), None]);
        assert!(pause(&[loss]) > pause(&[hindered]).map(|p| 50 * p));
        assert_eq!(
            pause(&[hindered, stay(Some(2.0), 1, EndReason::Impossible)]),
            None
        );
        assert_eq!(pause(&[]), None);
    }

    /// Whoever loses beside others that gain may have had no rival in the time before.
    #[test]
    fn a_move_by_which_one_thread_loses_is_tried_again_soon_and_only_once() {
        let mixed = stay(Some(1.4), 50_000_000, EndReason::NoGain);
        let pauses: Vec<_> = (1..=4).map(|n| pause(&vec![mixed; n])).collect();
        let soon = Some(100_000_000);
        let late = [5_000_000_000, 10_000_000_000].map(Some);
        assert_eq!(pauses, [soon, late[0], late[1], None]);
        let loss = stay(Some(0.8), 50_000_000, EndReason::NoGain);
        assert_eq!(pause(&[loss, mixed]), soon);
        assert_eq!(pause(&[mixed, loss]), late[0]);
    }

    /// The contention may be over for a second or two, and come back.
    #[test]
    fn a_move_that_changes_nothing_is_tried_again_sooner_and_more_often() {
        let same = stay(Some(1.02), 50_000_000, EndReason::NoGain);
        let pauses: Vec<_> = (1..=5).map(|n| pause(&vec![same; n])).collect();
        let seconds = |n: u64| Some(n * 1_000_000_000);
        let all = [seconds(1), seconds(2), seconds(4), seconds(8), None];
        assert_eq!(pauses, all);
        // What is lost counts by itself.
        let loss = stay(Some(0.8), 50_000_000, EndReason::NoGain);
        assert_eq!(pause(&[same, same, loss]), seconds(5));
        assert_eq!(pause(&[loss, loss, same, loss]), None);
    }
}
