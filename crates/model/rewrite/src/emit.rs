//! Encodes the copy: constants, then the instructions in an order that needs few jumps, then
//! the code for guards and checks that fail.

mod bits;
mod calls;
mod checks;
mod emitter;
mod entries;
mod guards;
mod runs;
mod strings;
mod through;

use crate::bounds::{Alternative, Bound, Plan};
use crate::choose::Chosen;
use crate::flow::can_be_copied;
use crate::kernel::is_kernel_call;
use crate::layout::order;
use crate::nodes::Nodes;
use crate::request::{Block, Condition, Entry, Refusal, Request, Resume, Shift};
use crate::version::CopyKind;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec;
use alloc::vec::Vec;
use emitter::{Emitter, Item, Target, displaced};
use entries::demanded;
use iced_x86::{Code, FlowControl, Instruction, MemoryOperand, Register as Iced};
use sunder_access::CodeAddress;

/// Encodes the copy of the chosen code, which will lie at `at`.
pub(crate) fn emit(
    request: &Request<'_>,
    chosen: &Chosen,
    at: CodeAddress,
) -> Result<Block, Refusal> {
    let ip = request.frame.ip;
    let mut emitter = Emitter {
        chosen,
        moved: request.moved,
        literals: Vec::new(),
        at: at.0,
        near: request.near.0,
        items: Vec::new(),
        labels: BTreeMap::new(),
        failed: false,
    };
    emitter.all();
    if emitter.failed {
        return Err(Refusal::Encode(ip));
    }
    let (bytes, offsets) = emitter.encode().ok_or(Refusal::Encode(ip))?;
    let offset_of = |target: Target| {
        let item = emitter.labels.get(&target)?;
        offsets.get(*item).copied()
    };
    let entry = offset_of(Target::Node(CopyKind::Fast, chosen.at)).ok_or(Refusal::Encode(ip))?;
    let mut entries = Vec::new();
    let operands = chosen.fast.plans.iter().map(|(&n, plan)| {
        let guards: Vec<Vec<Bound>> = match plan {
            Plan::Direct(_) => vec![Vec::new()],
            Plan::Guarded(all) => all.iter().flat_map(Alternative::each).collect(),
        };
        (n, guards)
    });
    let strings = chosen.fast.strings.iter();
    let strings = strings.map(|(&n, plan)| (n, plan.entries()));
    for (n, guards) in operands.chain(strings) {
        let offset = offset_of(Target::Node(CopyKind::Fast, n)).ok_or(Refusal::Encode(ip))?;
        let original = CodeAddress(chosen.graph.nodes[n].instruction.ip());
        let Some(facts) = demanded(chosen, n) else {
            continue;
        };
        for bounds in guards {
            let mut conditions = facts.clone();
            let more = bounds.iter();
            conditions.extend(more.map(|b| Condition::Register(b.register, b.low, b.high)));
            entries.push(Entry {
                original,
                offset,
                conditions,
            });
        }
    }
    let resume = emitter.items.iter().zip(&offsets);
    let resume = resume
        .map(|(item, &offset)| Resume {
            offset,
            original: CodeAddress(item.resume),
            pushed: item.pushed,
            saved: item.saved,
            shift: item.shift,
        })
        .collect();
    let instance = chosen.graph.nodes[chosen.at].instance;
    let own = chosen.body.iter().map(|&n| &chosen.graph.nodes[n]);
    let ips: Vec<u64> = own
        .filter(|n| n.instance == instance)
        .map(|n| n.instruction.ip())
        .collect();
    let count =
        |wanted: fn(&Plan) -> bool| chosen.fast.plans.values().filter(|p| wanted(p)).count();
    let shifted = chosen.fast.strings.values();
    let shifted = shifted.filter(|plan| plan.is_direct()).count();
    Ok(Block {
        bytes,
        entry,
        entries,
        resume,
        seen: chosen.seen,
        instructions: chosen.body.len() as u32,
        direct: (count(|p| matches!(p, Plan::Direct(_))) + shifted) as u32,
        guarded: (count(|p| matches!(p, Plan::Guarded(_))) + chosen.fast.strings.len() - shifted)
            as u32,
        checked: chosen.checks.len() as u32,
        is_loop: chosen.is_loop,
        covers: (
            CodeAddress(ips.iter().copied().min().unwrap_or(ip.0)),
            CodeAddress(ips.iter().copied().max().unwrap_or(ip.0)),
        ),
    })
}

impl Emitter<'_> {
    fn all(&mut self) {
        let chosen = self.chosen;
        self.version(CopyKind::Fast, &chosen.body);
        let slow: Nodes = chosen.slow.facts.keys().collect();
        self.version(CopyKind::Slow, &slow);
        let far: BTreeSet<u64> = self
            .items
            .iter()
            .filter_map(|item| match item.target {
                Some(Target::Far(ip)) => Some(ip),
                _ => None,
            })
            .collect();
        for ip in far {
            self.label(Target::Far(ip));
            let place = self.literal(ip);
            let place = MemoryOperand::with_base_displ(Iced::RIP, place as i64);
            self.put_made(Instruction::with1(Code::Jmp_rm64, place), ip);
        }
    }

    /// Emits the fast or the slow copy.
    fn version(&mut self, way: CopyKind, body: &Nodes) {
        let chosen = self.chosen;
        let order = order(&chosen.graph, body);
        for (place, &n) in order.iter().enumerate() {
            self.node(way, n, order.get(place + 1).copied());
        }
        for &n in &order {
            if let Some(Plan::Guarded(all)) = self.plans(way).plans.get(&n)
                && chosen.is_loop
            {
                self.other_alternatives(way, n, all);
            }
            self.other_shifts(way, n);
            self.cases(way, n);
            if way == CopyKind::Slow {
                self.back(n);
            }
            if self.labels.contains_key(&Target::Unexpected(way, n)) {
                self.label(Target::Unexpected(way, n));
                let instruction = chosen.graph.nodes[n].instruction;
                if instruction.flow_control() == FlowControl::Return {
                    self.put(instruction, instruction.ip());
                } else {
                    self.other_targets(way, n);
                }
            }
        }
    }

    /// Continues with the copy of the instruction's successor.
    fn follow(&mut self, way: CopyKind, n: usize, next: Option<usize>) {
        let node = &self.chosen.graph.nodes[n];
        if node.instruction.flow_control() == FlowControl::Next {
            let after = node.instruction.next_ip();
            self.check(way, n, after);
            self.go_on(way, node.instance, after, next);
        }
    }

    /// Emits the copy of one instruction. `next` is the instruction whose copy follows.
    fn node(&mut self, way: CopyKind, n: usize, next: Option<usize>) {
        let chosen = self.chosen;
        let node = &chosen.graph.nodes[n];
        let (instruction, instance) = (node.instruction, node.instance);
        let ip = instruction.ip();
        self.label(Target::Node(way, n));
        let through = chosen.graph.through.contains_key(&n) || is_kernel_call(&instruction);
        if !can_be_copied(&instruction) && !through {
            self.failed = true;
            return;
        }
        match instruction.flow_control() {
            FlowControl::IndirectBranch if self.continues_in_copy(way, n) => {
                self.first_target(way, n, next)
            }
            FlowControl::Next if self.plans(way).strings.contains_key(&n) => {
                self.string(way, n, next);
            }
            FlowControl::Next | FlowControl::IndirectBranch => {
                self.switch(way, n);
                let displaced = match self.plans(way).plans.get(&n) {
                    None => instruction,
                    Some(Plan::Direct(displacement)) => displaced(instruction, *displacement),
                    Some(Plan::Guarded(all)) => {
                        let Some(first) = all.first() else {
                            self.failed = true;
                            return;
                        };
                        // In a copy of one instruction, the entry's conditions have checked the
                        // bounds.
                        if chosen.is_loop && self.rare_bound(way, n, all).is_some() {
                            self.first_comparison(way, n, all);
                            instruction
                        } else {
                            if chosen.is_loop {
                                self.guard(way, n, 0, first);
                            }
                            displaced(instruction, first.displacement)
                        }
                    }
                };
                self.put_within_reach(n, displaced);
                self.follow(way, n, next);
            }
            FlowControl::UnconditionalBranch => {
                self.go_on(way, instance, instruction.near_branch_target(), next);
            }
            FlowControl::ConditionalBranch => {
                let target = self.target(way, instance, instruction.near_branch_target());
                self.items.push(Item {
                    instruction,
                    target: Some(target),
                    resume: ip,
                    pushed: 0,
                    saved: None,
                    shift: Shift::default(),
                });
                self.go_on(way, instance, instruction.next_ip(), next);
            }
            FlowControl::Call if is_kernel_call(&instruction) => {
                self.kernel_call(way, n, &instruction, next);
            }
            FlowControl::Call => self.call(way, n, &instruction, next),
            FlowControl::IndirectCall => self.call_through(way, n, next),
            FlowControl::Return => self.return_to_caller(way, n, &instruction, next),
            _ => self.put(instruction, ip),
        }
    }

    /// Compares the distance of a jump through a table with those that lead to code of the
    /// copy.
    fn switch(&mut self, way: CopyKind, n: usize) {
        let Some((distance, ways)) = self.plans(way).switches.get(&n) else {
            return;
        };
        let ip = self.chosen.graph.nodes[n].instruction.ip();
        for (number, (far, _)) in ways.iter().enumerate() {
            self.compare(*distance, *far as u64, ip);
            self.branch(Code::Je_rel32_64, Target::Case(way, n, number), ip);
        }
    }

    /// Emits the sum of the jump, and a branch to its target.
    fn cases(&mut self, way: CopyKind, n: usize) {
        let Some((_, ways)) = self.plans(way).switches.get(&n) else {
            return;
        };
        let nodes = &self.chosen.graph.nodes;
        for (number, &(_, target)) in ways.iter().enumerate() {
            self.label(Target::Case(way, n, number));
            self.put(nodes[n].instruction, nodes[n].instruction.ip());
            let to = nodes[target].instruction.ip();
            self.branch(Code::Jmp_rel32_64, Target::Node(way, target), to);
        }
    }
}
