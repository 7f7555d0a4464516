//! The waits on condition variables. A trace does not tell which signal ended a wait, and a thread
//! that gets no CPU goes on late, after further signals. The first signal after it began to wait is
//! what it waited for at the least. Called for the parallel order; reads no trace itself.

use std::collections::HashMap;

/// What a thread did with a condition variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Act {
    Signalled,
    Entered,
    Left,
}

/// See [`Act`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Passage {
    /// The recorded time, in ticks.
    pub ticks: u64,
    pub act: Act,
    /// The thread, by any number.
    pub thread: usize,
    /// The condition variable's address.
    pub condition: u64,
}

/// For each of `threads` threads, in the order in which it left condition variables, the tick before
/// which it waited for signals; 0 if it waited for none, as after a time-out. Sorts `all`.
pub(super) fn wakes(threads: usize, all: &mut [Passage]) -> Vec<Vec<u64>> {
    all.sort_unstable();
    // By condition variable: the threads that wait, with the first signal since, if there was one.
    let mut waiting: HashMap<u64, HashMap<usize, u64>> = HashMap::new();
    let mut wakes = vec![Vec::new(); threads];
    for passage in all.iter() {
        let here = waiting.entry(passage.condition).or_default();
        match passage.act {
            Act::Entered => {
                here.insert(passage.thread, 0);
            }
            Act::Signalled => {
                for first in here.values_mut().filter(|first| **first == 0) {
                    *first = passage.ticks + 1;
                }
            }
            Act::Left => wakes[passage.thread].push(here.remove(&passage.thread).unwrap_or(0)),
        }
    }
    wakes
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `e` for entered, `l` for left and `s` for signalled, with the thread's number, in the order
    /// of time.
    fn of(threads: usize, passages: &str) -> Vec<Vec<u64>> {
        let mut all: Vec<Passage> = passages
            .split_whitespace()
            .enumerate()
            .map(|(i, word)| Passage {
                ticks: i as u64 * 10,
                act: match &word[..1] {
                    "e" => Act::Entered,
                    "l" => Act::Left,
                    _ => Act::Signalled,
                },
                thread: word[1..].parse().unwrap(),
                condition: 64,
            })
            .collect();
        wakes(threads, &mut all)
    }

    #[test]
    fn the_first_signal_of_a_wait_ends_it() {
        assert_eq!(of(2, "s1 e0 s1 s1 l0 s1"), [vec![21], vec![]]);
        assert_eq!(
            of(3, "e0 e1 s2 l1 e1 s2 l0 l1"),
            [vec![21], vec![21, 51], vec![]]
        );
    }

    #[test]
    fn a_wait_without_a_signal_waits_for_none() {
        assert_eq!(of(2, "s1 e0 l0 l0"), [vec![0, 0], vec![]]);
    }
}
