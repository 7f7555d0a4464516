//! A range of pages whose bytes have moved: what is remembered of threads that asked for copies of code.
//! What is remembered has limits, since the program writes the requests.

use super::called::MOST_CALLS;
use super::draft::{Known, Learnt};
use crate::busy::Busy;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use sunder_access::CodeAddress;
use sunder_findings::RewrittenCode;
use sunder_plan::remap::Group;
use sunder_rewrite::{Block, Met, MovedPage, Seen};

/// Most faults that are remembered of one thread.
const MOST_SEEN: usize = 256;
/// Most copies for one area.
pub const MOST_BLOCKS: u32 = 1024;
/// Most threads of which faults are remembered. The program writes the number of its thread; when
/// there are more, all are forgotten and what is made for the next faults is as for the first.
const MOST_THREADS: usize = 1024;
/// Most pairs of a thread and an instruction of which requests are counted: several for each copy.
const MOST_ASKED: usize = 1 << 14;

/// How many copies of single instructions a thread gets that only uses bytes beside the groups, as
/// a thread that prints results at the end. Most such instructions run a few times; looking for a
/// loop in the functions around one takes as long as this many answers, or longer.
const PASSING: u32 = 16;

/// A range of pages whose bytes have moved.
pub struct MovedArea {
    pub moved: Arc<MovedPage>,
    /// Address of its copies of code in the program.
    pub at: u64,
    /// Bytes of copies so far.
    pub used: u64,
    pub blocks: u32,
    /// The faults of each thread for which loops were copied.
    pub seen: HashMap<u32, Vec<Seen>>,
    /// Those for which single instructions were to be copied.
    pub alone: HashMap<u32, Vec<Seen>>,
    /// The groups that have lines of their own, with their threads.
    pub groups: Vec<Group>,
    /// How many times each thread has asked about an instruction.
    pub asked: HashMap<(u32, u64), u32>,
    /// Calls that threads were in when they asked, at most [`MOST_CALLS`].
    pub met: Vec<Met>,
    pub code: BTreeMap<u64, RewrittenCode>,
    pub refusal: Option<String>,
    pub busy: Busy,
}

impl MovedArea {
    /// Counts the thread's requests about this instruction, this one included. Beyond
    /// [`MOST_ASKED`], each counts as the first.
    pub fn asks(&mut self, thread: u32, ip: u64) -> u32 {
        if self.asked.len() >= MOST_ASKED && !self.asked.contains_key(&(thread, ip)) {
            return 1;
        }
        let count = self.asked.entry((thread, ip)).or_default();
        *count = count.saturating_add(1);
        *count
    }

    /// The faults of a thread; see [`MOST_THREADS`].
    pub fn seen_by(seen: &mut HashMap<u32, Vec<Seen>>, thread: u32) -> &mut Vec<Seen> {
        if seen.len() >= MOST_THREADS && !seen.contains_key(&thread) {
            seen.clear();
        }
        seen.entry(thread).or_default()
    }

    /// Counts a copy of code of the function at `start`; of [`MOST_BLOCKS`] functions at most.
    pub fn count(&mut self, start: u64, block: &Block) {
        if self.code.len() >= MOST_BLOCKS as usize && !self.code.contains_key(&start) {
            return;
        }
        let counts = self.code.entry(start).or_default();
        counts.copies += 1;
        if block.is_loop && counts.loops == 0 {
            (counts.direct, counts.guarded, counts.checked) = (0, 0, 0);
        }
        counts.loops += u32::from(block.is_loop);
        if block.is_loop || counts.loops == 0 {
            counts.direct = counts.direct.max(block.direct);
            counts.guarded = counts.guarded.max(block.guarded);
            counts.checked = counts.checked.max(block.checked);
        }
    }

    /// How many copies of single instructions a thread gets before loops are looked for.
    pub fn patience(&self, thread: u32, address: u64) -> u32 {
        let page = self.moved.page.start.0;
        let on = |g: &Group| address.wrapping_sub(page).wrapping_sub(g.offset) < g.size;
        let uses = |g: &Group| on(g) || g.threads.contains(&thread);
        if self.groups.iter().any(uses) {
            1
        } else {
            PASSING
        }
    }

    /// What a draft for this thread is made from.
    pub fn known(&mut self, thread: u32) -> Known {
        Known {
            moved: Arc::clone(&self.moved),
            near: CodeAddress(self.at),
            seen: Self::seen_by(&mut self.seen, thread).clone(),
            alone: Self::seen_by(&mut self.alone, thread).clone(),
            met: self.met.clone(),
        }
    }

    /// Remembers a copy that was made for a thread: of one instruction if `alone`, which was asked for.
    /// A copy of one instruction is no visit to the loop around it. But if the thread comes back to one
    /// of several such instructions, the loop has the others as a rule, and is copied for all of them
    /// at once.
    pub fn remember(&mut self, thread: u32, block: &Block, learnt: Learnt, alone: bool) {
        let of = if alone {
            &mut self.alone
        } else {
            &mut self.seen
        };
        let seen = Self::seen_by(of, thread);
        if seen.len() < MOST_SEEN && !seen.contains(&block.seen) {
            seen.push(block.seen);
        }
        self.count(learnt.function, block);
        for one in learnt.met.into_iter().flatten() {
            if self.met.len() < MOST_CALLS && !self.met.contains(&one) {
                self.met.push(one);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sunder_access::{Address, Span};

    fn area_at(page: u64) -> MovedArea {
        MovedArea {
            moved: Arc::new(MovedPage {
                page: Span::new(Address(page), 4096),
                rules: Vec::new(),
            }),
            at: 0,
            used: 0,
            blocks: 0,
            seen: HashMap::new(),
            alone: HashMap::new(),
            groups: Vec::new(),
            asked: HashMap::new(),
            met: Vec::new(),
            code: BTreeMap::new(),
            refusal: None,
            busy: Busy::new(1),
        }
    }

    /// The program writes the numbers of its threads and instructions into its requests.
    #[test]
    fn what_is_remembered_of_requests_has_a_limit() {
        let mut area = area_at(0x1000);
        for request in 0..2 * MOST_ASKED as u64 {
            assert_eq!(area.asks(1, request), 1);
            MovedArea::seen_by(&mut area.seen, request as u32);
        }
        assert_eq!(area.asks(1, 0), 2);
        assert_eq!(area.asked.len(), MOST_ASKED);
        assert!(area.seen.len() <= MOST_THREADS);
        assert!(area.seen.contains_key(&(2 * MOST_ASKED as u32 - 1)));
    }

    /// A thread whose own bytes have moved does not only pass by, nor does a new thread that uses
    /// moved bytes.
    #[test]
    fn only_threads_that_use_unmoved_bytes_get_single_instructions_for_long() {
        let page = 0x1000_0000;
        let mut area = area_at(page);
        area.groups.push(Group {
            offset: 0x40,
            size: 8,
            threads: [7].into_iter().collect(),
        });
        assert_eq!(area.patience(7, page + 0x100), 1);
        assert_eq!(area.patience(8, page + 0x47), 1);
        for beside in [page, page + 0x3f, page + 0x48] {
            assert_eq!(area.patience(8, beside), PASSING);
        }
    }
}
