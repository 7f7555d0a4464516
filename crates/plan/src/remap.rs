//! Which bytes of contended lines go to lines of their own while the program runs
//! (Plastic, EuroSys 2013, section 4.4): bytes that the same threads use are one
//! group. Pure.

use std::collections::BTreeSet;

/// Bytes that were seen in use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Use {
    /// Offset of the first from the start of the pages.
    pub offset: u64,
    /// How many.
    pub size: u64,
    /// By whom.
    pub threads: BTreeSet<u32>,
    /// Whether any of these write.
    pub written: bool,
}

/// Bytes that move together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Offset of the first from the start of the pages.
    pub offset: u64,
    /// How many.
    pub size: u64,
    /// Who uses them.
    pub threads: BTreeSet<u32>,
}

/// Why nothing is to be moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unmoved {
    /// Fewer than two groups: there is nothing to take apart.
    OneGroup,
    /// Threads share the very bytes.
    TrueSharing,
    /// The bytes of different threads overlap or alternate too finely.
    TooMany,
}

impl Unmoved {
    /// The reason, as a sentence goes on after "because".
    pub const fn why(self) -> &'static str {
        match self {
            Self::OneGroup => "its bytes are those of one group of threads",
            Self::TrueSharing => "threads write the same bytes",
            Self::TooMany => "it would fall into too many pieces",
        }
    }
}

/// The groups of `uses`, by ascending offset: runs of bytes with the same users,
/// of which somebody writes. Others stay where they are. Bytes between two uses of
/// one group belong to it, so that wider accesses stay whole.
///
/// # Errors
/// If moving would not help, or there would be more than `most`.
pub fn groups(uses: &[Use], most: usize) -> Result<Vec<Group>, Unmoved> {
    let mut uses: Vec<&Use> = uses.iter().collect();
    uses.sort_by_key(|u| (u.offset, u.size));
    if uses.iter().any(|u| u.written && u.threads.len() > 1) {
        return Err(Unmoved::TrueSharing);
    }
    let mut groups: Vec<(Group, bool)> = Vec::new();
    for one in uses {
        let end = one.offset + one.size;
        match groups.last_mut() {
            Some((last, written)) if last.threads == one.threads => {
                last.size = last.size.max(end - last.offset);
                *written |= one.written;
            }
            Some((last, _)) if one.offset < last.offset + last.size => {
                return Err(Unmoved::TooMany);
            }
            _ => groups.push((
                Group {
                    offset: one.offset,
                    size: one.size,
                    threads: one.threads.clone(),
                },
                one.written,
            )),
        }
    }
    let moved: Vec<Group> = groups
        .into_iter()
        .filter(|(_, written)| *written)
        .map(|(group, _)| group)
        .collect();
    if moved.len() > most {
        return Err(Unmoved::TooMany);
    }
    let owners: BTreeSet<_> = moved.iter().map(|g| &g.threads).collect();
    if owners.len() < 2 {
        return Err(Unmoved::OneGroup);
    }
    Ok(moved)
}

/// Why bytes that had been moved went back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Their threads got on no faster.
    Helpless,
    /// Something needed them at their old place.
    Hindered,
    /// They can't stay away.
    Impossible,
}

/// One time that bytes were moved, until they went back.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stay {
    /// Threads that use them.
    pub threads: usize,
    /// How many times as fast these got on; none if that was not measured.
    pub gain: Option<f64>,
    /// How long it lasted, in ns.
    pub lasted_ns: u64,
    /// What moving, putting back and faults took, in ns.
    pub cost_ns: u64,
    /// Why it ended.
    pub ended: Ended,
}

impl Stay {
    /// Whether it gained more time than it cost.
    fn paid(&self) -> bool {
        let share = self.gain.map_or(0.0, |gain| 1.0 - 1.0 / gain);
        self.threads as f64 * self.lasted_ns as f64 * share > self.cost_ns as f64
    }
}

/// Bytes are not moved more often.
const MOST_STAYS: usize = 16;
/// So many stays in a row that did not pay are the last.
const MOST_UNPAID: usize = 3;
/// So many stays that were measured to help nothing are the last.
const MOST_HELPLESS: usize = 3;
/// The pause after bytes were needed at their old place, in ns; it doubles with each.
const AFTER_HINDRANCE: u64 = 50_000_000;
/// The pause after a stay that did not help, in ns; it doubles with each.
const AFTER_HELPLESS: u64 = 5_000_000_000;
/// The longest pause, in ns.
const LONGEST_PAUSE: u64 = 60_000_000_000;

/// How long after the last of `stays` its bytes may be moved again, in ns; none if
/// never.
pub fn pause(stays: &[Stay]) -> Option<u64> {
    let last = stays.last()?;
    let count = |ended| stays.iter().filter(|s| s.ended == ended).count();
    let unpaid = stays.iter().rev().take_while(|s| !s.paid()).count();
    if stays.len() >= MOST_STAYS || unpaid >= MOST_UNPAID {
        return None;
    }
    let (first, times) = match last.ended {
        Ended::Impossible => return None,
        Ended::Helpless if count(Ended::Helpless) >= MOST_HELPLESS => return None,
        Ended::Helpless => (AFTER_HELPLESS, count(Ended::Helpless)),
        Ended::Hindered => (AFTER_HINDRANCE, count(Ended::Hindered)),
    };
    Some((first << (times - 1)).min(LONGEST_PAUSE))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn used(offset: u64, size: u64, threads: &[u32], written: bool) -> Use {
        Use {
            offset,
            size,
            threads: threads.iter().copied().collect(),
            written,
        }
    }

    fn moved(uses: &[Use]) -> Result<Vec<(u64, u64)>, Unmoved> {
        groups(uses, 8).map(|all| all.iter().map(|g| (g.offset, g.size)).collect())
    }

    #[test]
    fn neighbouring_words_of_one_thread_are_one_group_with_what_is_between() {
        let uses = [
            used(0, 8, &[1], true),
            used(24, 8, &[1], true),
            used(16, 8, &[1], false),
            used(32, 8, &[2], true),
        ];
        assert_eq!(moved(&uses), Ok(vec![(0, 32), (32, 8)]));
    }

    #[test]
    fn what_is_only_read_stays() {
        let uses = [
            used(0, 8, &[1], true),
            used(8, 8, &[1, 2], false),
            used(16, 8, &[2], true),
        ];
        assert_eq!(moved(&uses), Ok(vec![(0, 8), (16, 8)]));
    }

    #[test]
    fn true_sharing_is_left_alone() {
        let uses = [used(0, 8, &[1, 2], true), used(8, 8, &[2], true)];
        assert_eq!(moved(&uses), Err(Unmoved::TrueSharing));
    }

    #[test]
    fn one_threads_bytes_are_not_moved() {
        let uses = [used(0, 8, &[1], true), used(8, 8, &[2], false)];
        assert_eq!(moved(&uses), Err(Unmoved::OneGroup));
        assert_eq!(moved(&[]), Err(Unmoved::OneGroup));
    }

    #[test]
    fn overlapping_uses_of_different_threads_are_not_taken_apart() {
        let uses = [used(0, 8, &[1], true), used(4, 8, &[2], true)];
        assert_eq!(moved(&uses), Err(Unmoved::TooMany));
    }

    #[test]
    fn no_more_groups_than_there_is_room_for() {
        let uses: Vec<Use> = (0..9).map(|n| used(n * 8, 8, &[n as u32], true)).collect();
        assert_eq!(moved(&uses), Err(Unmoved::TooMany));
    }

    fn stay(gain: Option<f64>, lasted_ns: u64, ended: Ended) -> Stay {
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
        // Two threads save half of a second each: far more than a millisecond.
        let good = stay(Some(2.0), 1_000_000_000, Ended::Hindered);
        let pauses: Vec<_> = (1..=4).map(|n| pause(&vec![good; n])).collect();
        let first = pauses[0].expect("it may");
        assert_eq!(pauses[1..], [2, 4, 8].map(|n| Some(n * first)));
        assert_eq!(pause(&[good; MOST_STAYS]), None);
    }

    #[test]
    fn what_costs_more_than_it_gains_ends() {
        // Two threads save half of 0.1 ms each.
        let short = stay(Some(2.0), 100_000, Ended::Hindered);
        let unknown = stay(None, 1_000_000_000, Ended::Hindered);
        let good = stay(Some(2.0), 1_000_000_000, Ended::Hindered);
        assert!(pause(&[short, short]).is_some());
        assert_eq!(pause(&[short, unknown, short]), None);
        assert!(pause(&[short, short, good]).is_some());
        assert!(pause(&[short, short, good, short]).is_some());
    }

    #[test]
    fn what_does_not_help_rests_long_and_what_cannot_be_is_over() {
        let bad = stay(Some(1.0), 50_000_000, Ended::Helpless);
        let hindered = stay(Some(2.0), 1_000_000_000, Ended::Hindered);
        assert!(pause(&[bad]) > pause(&[hindered]).map(|p| 50 * p));
        assert_eq!(
            pause(&[hindered, stay(Some(2.0), 1, Ended::Impossible)]),
            None
        );
        assert_eq!(pause(&[]), None);
    }
}
