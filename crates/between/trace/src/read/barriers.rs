//! The rounds of barriers. A trace tells when a thread reached a barrier and when it went on. But a
//! thread that gets no CPU goes on late, when others may have reached the barrier again; it did not
//! wait for what they did in between. Called for the parallel order, which needs the round that
//! a thread left; reads no trace itself.
//!
//! A round is over when the first of its threads leaves: all threads of the round have reached the
//! barrier by then, and none has reached it again. Each round has the same number of threads, which
//! is checked. Where it differs, a thread counts as leaving when it went on, and so as having
//! waited for all events before.

use std::collections::HashMap;

/// The passage of a thread into or out of a barrier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Passage {
    /// The recorded time, in ticks.
    pub ticks: u64,
    /// Whether the thread left the barrier; if not, it reached it.
    pub left: bool,
    /// The thread, by any number.
    pub thread: usize,
    /// The barrier's address.
    pub barrier: u64,
}

/// Threads at one barrier.
#[derive(Debug, Default)]
struct Barrier {
    /// Threads that have reached the barrier in the current round.
    gathering: Vec<usize>,
    /// Threads that have not left earlier rounds yet, with the end of their round in ticks.
    leaving: HashMap<usize, u64>,
    /// How many threads a round has.
    size: Option<usize>,
    /// Whether the numbers differ, so that rounds can't be told apart.
    odd: bool,
}

impl Barrier {
    /// The end of the round that `thread` left, if it is known.
    fn left(&mut self, thread: usize, ticks: u64) -> Option<u64> {
        if let Some(end) = self.leaving.remove(&thread) {
            return Some(end);
        }
        let round = std::mem::take(&mut self.gathering);
        self.odd |= !round.contains(&thread);
        self.odd |= *self.size.get_or_insert(round.len()) != round.len();
        self.leaving.extend(round.into_iter().map(|t| (t, ticks)));
        self.leaving.remove(&thread)
    }
}

/// For each of `threads` threads, in the order in which it left barriers, the end of the round: it
/// waited for what other threads did before that tick. Sorts `all`.
pub(super) fn rounds(threads: usize, all: &mut [Passage]) -> Vec<Vec<u64>> {
    all.sort_unstable();
    let mut barriers: HashMap<u64, Barrier> = HashMap::new();
    let mut ends = vec![Vec::new(); threads];
    for passage in all.iter() {
        let barrier = barriers.entry(passage.barrier).or_default();
        if passage.left {
            let end = barrier.left(passage.thread, passage.ticks);
            ends[passage.thread].push((passage, end));
        } else {
            barrier.gathering.push(passage.thread);
        }
    }
    let end = |&(passage, end): &(&Passage, Option<u64>)| {
        let odd = barriers.get(&passage.barrier).is_none_or(|b| b.odd);
        end.filter(|_| !odd).unwrap_or(passage.ticks)
    };
    ends.iter().map(|of| of.iter().map(end).collect()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `r` for reached and `l` for left, with the thread's number, in the order of time.
    fn ends(threads: usize, passages: &str) -> Vec<Vec<u64>> {
        let mut all: Vec<Passage> = passages
            .split_whitespace()
            .enumerate()
            .map(|(i, word)| Passage {
                ticks: i as u64 * 10,
                left: word.starts_with('l'),
                thread: word[1..].parse().unwrap(),
                barrier: 64,
            })
            .collect();
        rounds(threads, &mut all)
    }

    #[test]
    fn a_thread_that_leaves_a_barrier_late_belongs_to_its_own_round() {
        // Thread 1 goes on after thread 0 has already come back.
        let passages = "r0 r1 l0 r0 l1 r1 l1 l0";
        assert_eq!(ends(2, passages), [vec![20, 60], vec![20, 60]]);
    }

    #[test]
    fn a_thread_that_leaves_two_rounds_late_belongs_to_its_own_round() {
        let passages = "r0 r1 r2 l0 l1 r0 r1 l2 r2 l0 l1 l2";
        assert_eq!(
            ends(3, passages),
            [vec![30, 90], vec![30, 90], vec![30, 90]]
        );
    }

    #[test]
    fn rounds_of_different_numbers_are_not_told_apart() {
        // Two of three threads each time: thread 2 reaches it before the first round is over.
        let passages = "r0 r1 r2 l0 l1 r0 l0 l2";
        assert_eq!(ends(3, passages), [vec![30, 60], vec![40], vec![70]]);
    }

    #[test]
    fn a_departure_without_an_arrival_is_taken_as_it_is() {
        assert_eq!(ends(2, "r0 l0 l1"), [vec![10], vec![20]]);
    }
}
