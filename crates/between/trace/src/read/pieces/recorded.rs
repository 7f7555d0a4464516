//! The recorded order, many accesses of one thread at once.

use crate::read::filter::Kinds;
use crate::read::lane::Lane;
use crate::read::piece::{Part, Piece, Turns};
use crate::read::trace::Trace;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The same order as [`crate::read::Events`], many accesses of one thread at once.
#[derive(Debug)]
pub(super) struct Recorded<'t> {
    lanes: Vec<Lane<'t>>,
    /// All threads but the current one, by the time of their next slot.
    waiting: BinaryHeap<Reverse<(u64, usize)>>,
    /// The current thread, and the time until which its slots come next.
    current: Option<usize>,
    until: (u64, usize),
    part: [Part; 1],
}

impl<'t> Recorded<'t> {
    pub(super) fn new(trace: &'t Trace, kinds: Kinds) -> Self {
        let mut lanes = Vec::new();
        let mut waiting = BinaryHeap::new();
        for place in 0..trace.threads().len() {
            let lane = Lane::new(trace, place, kinds);
            if let Some(first) = lane.begins() {
                waiting.push(Reverse((first, lanes.len())));
                lanes.push(lane);
            }
        }
        Self {
            lanes,
            waiting,
            current: None,
            until: (0, 0),
            part: [Part {
                lane: 0,
                at: 0,
                time: 0,
            }],
        }
    }

    pub(super) fn next(&mut self) -> Option<Piece<'_>> {
        loop {
            let Some(head) = self.current else {
                self.turn()?;
                continue;
            };
            let lane = &mut self.lanes[head];
            if !lane.refill() {
                self.current = None;
                continue;
            }
            let ticks = lane.batch.ticks[lane.at];
            if (ticks, head) > self.until {
                self.change(ticks, head);
                continue;
            }
            let accesses = lane.accesses();
            if accesses == 0 {
                if let Some(event) = lane.stop() {
                    return Some(Piece::Event(event));
                }
                continue;
            }
            let until = self.until;
            let ahead = &lane.batch.ticks[lane.at..lane.at + accesses];
            let rounds = run(ahead, |ticks| (ticks, head) <= until);
            self.part[0].lane = head;
            self.part[0].at = lane.at;
            lane.at += rounds;
            let turns = Turns::new(&self.lanes, &self.part, rounds, false);
            return Some(Piece::Accesses(turns));
        }
    }

    pub(super) fn damaged_blocks(&self) -> u64 {
        self.lanes.iter().map(|lane| lane.damaged).sum()
    }

    /// Makes the first waiting thread the current one. `head`, the current one until now, waits;
    /// its next slot is at `ticks`.
    fn change(&mut self, ticks: u64, head: usize) {
        let Some(mut first) = self.waiting.peek_mut() else {
            return;
        };
        let Reverse((_, next)) = std::mem::replace(&mut *first, Reverse((ticks, head)));
        drop(first);
        self.current = Some(next);
        let next = self.waiting.peek();
        self.until = next.map_or((u64::MAX, usize::MAX), |Reverse(next)| *next);
    }

    /// Makes the first waiting thread the current one.
    fn turn(&mut self) -> Option<()> {
        let Reverse((_, head)) = self.waiting.pop()?;
        self.current = Some(head);
        let next = self.waiting.peek();
        self.until = next.map_or((u64::MAX, usize::MAX), |Reverse(next)| *next);
        Some(())
    }
}

/// For how many of the first of `ticks`, which ascend, `holds` is true: mostly few.
fn run(ticks: &[u64], holds: impl Fn(u64) -> bool) -> usize {
    let mut step = 4;
    loop {
        match ticks.get(step - 1) {
            Some(&last) if holds(last) => step *= 2,
            _ => break,
        }
    }
    let known = if step > 4 { step / 2 } else { 0 };
    let rest = &ticks[known..step.min(ticks.len())];
    if step == 4 {
        return rest.iter().take_while(|t| holds(**t)).count();
    }
    known + rest.partition_point(|&t| holds(t))
}
