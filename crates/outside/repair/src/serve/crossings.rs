//! Finds loops that use bytes of two moves. A copy of code knows the bytes of one, so a thread in such a loop
//! leaves one copy for the other at each round, by a fault each time, and gets on much slower than before.
//! This module only counts, and must not move anything: the caller takes one of the two moves back.

use std::collections::{HashMap, HashSet};

/// After so many questions about one move, by threads whose loop was copied for another, the loop is taken to use
/// both. A few are usual: a function is called for the one object and then for the other.
const MANY: u32 = 16;
/// Most instructions that are remembered for one move. Loops beyond that are not found.
const MOST: usize = 1 << 14;

/// See the module's head.
#[derive(Debug, Default)]
pub struct Crossings {
    /// By the number of the area: the threads for which loops were copied, with the loops' instructions.
    loops: HashMap<usize, HashSet<(u32, u64)>>,
    /// By two areas, the smaller number first: how many questions there were.
    counts: HashMap<(usize, usize), u32>,
}

impl Crossings {
    /// A loop with these instructions was copied for a thread that had asked about area `number`.
    pub fn copied(&mut self, number: usize, thread: u32, loops: impl Iterator<Item = u64>) {
        let known = self.loops.entry(number).or_default();
        for instruction in loops {
            if known.len() >= MOST {
                return;
            }
            known.insert((thread, instruction));
        }
    }

    /// A thread asks about area `number` at this instruction. `is_moved`: whether another area's bytes are
    /// still away.
    pub fn asks(&mut self, number: usize, thread: u32, ip: u64, is_moved: impl Fn(usize) -> bool) {
        let others = self.loops.iter().filter(|&(&other, known)| {
            other != number && known.contains(&(thread, ip)) && is_moved(other)
        });
        for (&other, _) in others {
            let pair = (number.min(other), number.max(other));
            *self.counts.entry(pair).or_default() += 1;
        }
    }

    /// Pairs of areas that loops use both, each told once.
    pub fn told(&mut self) -> Vec<(usize, usize)> {
        let all = self.counts.extract_if(|_, count| *count >= MANY);
        all.map(|(pair, _)| pair).collect()
    }

    /// Other bytes move as area `number`.
    pub fn forget(&mut self, number: usize) {
        self.loops.remove(&number);
        self.counts
            .retain(|&(one, other), _| one != number && other != number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_goes_from_one_copy_of_its_loop_to_another_crosses_both_moves() {
        let mut crossings = Crossings::default();
        crossings.copied(2, 7, [0x10, 0x14].into_iter());
        crossings.copied(5, 7, [0x10, 0x14].into_iter());
        for _ in 1..MANY {
            crossings.asks(5, 7, 0x14, |_| true);
        }
        assert!(crossings.told().is_empty());
        crossings.asks(2, 7, 0x10, |_| true);
        assert_eq!(crossings.told(), [(2, 5)]);
        assert!(crossings.told().is_empty(), "it is told once");
    }

    #[test]
    fn threads_with_loops_of_their_own_do_not() {
        let mut crossings = Crossings::default();
        crossings.copied(2, 7, [0x10].into_iter());
        for _ in 0..2 * MANY {
            // Another thread, another instruction, the same move, one whose bytes are back.
            crossings.asks(5, 8, 0x10, |_| true);
            crossings.asks(5, 7, 0x14, |_| true);
            crossings.asks(2, 7, 0x10, |_| true);
            crossings.asks(5, 7, 0x10, |_| false);
        }
        assert!(crossings.told().is_empty());
        crossings.forget(2);
        for _ in 0..2 * MANY {
            crossings.asks(5, 7, 0x10, |_| true);
        }
        assert!(crossings.told().is_empty(), "its loops were forgotten");
    }

    #[test]
    fn what_is_remembered_has_a_limit() {
        let mut crossings = Crossings::default();
        crossings.copied(0, 1, 0..2 * MOST as u64);
        assert_eq!(crossings.loops[&0].len(), MOST);
    }
}
