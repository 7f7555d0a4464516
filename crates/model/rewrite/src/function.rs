//! Which instruction of a function comes after which, and the function's loops. Called by `ordering`. It must
//! not guess: where a loop is entered from is known, or it is no loop.

use crate::waiting::Loop;
use alloc::collections::BTreeSet;
use alloc::vec;
use alloc::vec::Vec;
use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction};
use sunder_x86::Manual;

/// The limit of work on one function: its instructions, times its backward branches.
const MOST_STEPS: usize = 50_000_000;

/// A function with known bounds.
#[derive(Clone, Copy, Debug)]
pub struct Function<'a> {
    /// The address of its first byte.
    pub address: u64,
    /// All of its bytes.
    pub code: &'a [u8],
}

/// An instruction of a function, as far as it matters here.
#[derive(Debug)]
pub(crate) struct Step {
    /// Its address.
    pub ip: u64,
    /// The target of its branch.
    target: Option<u64>,
    /// Whether control may go to the next instruction.
    goes_on: bool,
    /// It stores to memory, or calls code that may.
    acts: bool,
}

/// A function's instructions in the order of their addresses.
#[derive(Debug)]
pub(crate) struct Flow {
    pub steps: Vec<Step>,
    /// For each instruction, those after which it may come.
    before: Vec<Vec<usize>>,
    /// Branches back or to themselves: the target, and the branch.
    back: Vec<(usize, usize)>,
}

impl Flow {
    /// Shows every instruction to `visit`. `None` if bytes are no instruction.
    pub fn new(function: &Function<'_>, mut visit: impl FnMut(&Instruction)) -> Option<Self> {
        let mut decoder =
            Decoder::with_ip(64, function.code, function.address, DecoderOptions::NONE);
        let mut instruction = Instruction::default();
        let mut manual = Manual::default();
        let mut steps = Vec::new();
        while decoder.can_decode() {
            decoder.decode_out(&mut instruction);
            if instruction.is_invalid() {
                return None;
            }
            visit(&instruction);
            let flow = instruction.flow_control();
            let branches = matches!(
                flow,
                FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch
            );
            let calls = matches!(flow, FlowControl::Call | FlowControl::IndirectCall);
            steps.push(Step {
                ip: instruction.ip(),
                target: branches.then(|| instruction.near_branch_target()),
                goes_on: !matches!(
                    flow,
                    FlowControl::UnconditionalBranch
                        | FlowControl::IndirectBranch
                        | FlowControl::Return
                        | FlowControl::Exception
                ),
                acts: calls || manual.does(&instruction).writes_memory(),
            });
        }
        Some(Self::of(steps))
    }

    fn of(steps: Vec<Step>) -> Self {
        let mut flow = Self {
            before: vec![Vec::new(); steps.len()],
            back: Vec::new(),
            steps,
        };
        for (i, step) in flow.steps.iter().enumerate() {
            let next = step.goes_on.then_some(i + 1);
            let target = step.target.and_then(|target| flow.place(target));
            for to in next.into_iter().chain(target) {
                if let Some(before) = flow.before.get_mut(to) {
                    before.push(i);
                }
            }
            if let Some(first) = target.filter(|t| *t <= i) {
                flow.back.push((first, i));
            }
        }
        flow
    }

    /// The number of the instruction at this address.
    fn place(&self, ip: u64) -> Option<usize> {
        self.steps.binary_search_by_key(&ip, |step| step.ip).ok()
    }

    /// The targets of branches back, and the branches. None if all of them together would take too long.
    pub fn branches_back(&self) -> impl Iterator<Item = (usize, usize)> {
        let work = self.back.len().saturating_mul(self.steps.len());
        let most = if work > MOST_STEPS { 0 } else { usize::MAX };
        self.back.iter().copied().take(most)
    }

    /// The instructions of a loop that seems to wait for another thread, if it does. It does if nothing but
    /// another thread can end it. If it may end by itself, it must neither store nor call, also not where it lies
    /// elsewhere: compilers put the rarer way of a loop behind the function. If its ways are not known, it is
    /// taken for one that waits.
    pub fn waits(&self, seeming: &Loop) -> Option<Vec<usize>> {
        let first = self.place_from(seeming.bytes.start);
        let end = self.place_from(seeming.bytes.end);
        let seen = || Some((first..end).collect());
        if !seeming.counts {
            return seen();
        }
        let mut all = BTreeSet::new();
        // Loops with the same first instruction may be one: which branch goes back differs from round to round.
        for (_, last) in self.branches_back().filter(|back| back.0 == first) {
            match self.body(first, last) {
                Some(body) => all.extend(body),
                None => return seen(),
            }
        }
        let acts = |i: &usize| self.steps.get(*i).is_none_or(|step| step.acts);
        match (all.is_empty(), all.iter().any(acts)) {
            (true, _) => seen(),
            (false, true) => None,
            (false, false) => Some(all.into_iter().collect()),
        }
    }

    /// The number of the first instruction at this address or behind it.
    fn place_from(&self, ip: u64) -> usize {
        self.steps.partition_point(|step| step.ip < ip)
    }

    /// The natural loop of a branch back from `last` to `first`: all instructions from which the
    /// branch is reached without passing `first`. `None` if the loop can be entered in the middle:
    /// at the function's beginning, or at an instruction whose predecessors are not known.
    pub fn body(&self, first: usize, last: usize) -> Option<BTreeSet<usize>> {
        let mut body = BTreeSet::from([first, last]);
        let mut open = if first == last {
            Vec::new()
        } else {
            vec![last]
        };
        let mut is_whole = first == last;
        while let Some(at) = open.pop() {
            let before = self.before.get(at);
            let from = before.filter(|from| at != 0 && !from.is_empty())?;
            for from in from {
                is_whole |= *from == first;
                if body.insert(*from) {
                    open.push(*from);
                }
            }
        }
        is_whole.then_some(body)
    }
}
