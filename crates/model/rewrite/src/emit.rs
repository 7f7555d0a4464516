//! Encodes the copy: constants, then the instructions in an order that needs few jumps, then
//! the code for guards and checks that fail.

mod through;

use crate::flow::{can_be_copied, is_kernel_call, is_plain_return};
use crate::layout::order;
use crate::plan::{Alternative, Bound, Chosen, Plan, Version, Way};
use crate::reach::NEAR;
use crate::registers::{FOLLOWED, Register};
use crate::request::{Block, Condition, Entry, MovedPage, Refusal, Request, Resume};
use crate::values::Values;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec;
use alloc::vec::Vec;
use iced_x86::{
    BlockEncoder, BlockEncoderOptions, Code, FlowControl, Instruction, InstructionBlock,
    MemoryOperand, Register as Iced,
};
use sunder_access::CodeAddress;

/// The instructions of the copy are numbered by addresses from here on, which user space does
/// not have.
const NOWHERE: u64 = 1 << 61;

/// The targets of branches in the copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Target {
    /// The copy of an instruction.
    Node(Way, usize),
    /// The check after an instruction.
    Check(Way, usize),
    /// The guard of an instruction, after a first comparison said that its operand may be on
    /// the page.
    Maybe(Way, usize),
    /// The code for an alternative of a guard that fails.
    Fails(Way, usize, usize),
    /// The sum before a jump through a table, for the case that it leads to this target.
    Case(Way, usize, usize),
    /// From the check after an instruction of the slow copy to the fast copy.
    Back(usize),
    /// The code for a leaf whose return address is not the call's.
    Astray(Way, usize),
    /// An instruction of the original code.
    Original(u64),
    /// A jump to original code that a near branch does not reach.
    Far(u64),
}

struct Item {
    instruction: Instruction,
    target: Option<Target>,
    resume: u64,
}

struct Emitter<'a> {
    chosen: &'a Chosen,
    moved: &'a MovedPage,
    literals: Vec<u64>,
    /// The address at which the block will lie.
    at: u64,
    items: Vec<Item>,
    /// The first item of each target.
    labels: BTreeMap<Target, usize>,
    failed: bool,
}

/// Encodes the copy of the chosen code.
pub(crate) fn emit(request: &Request<'_>, chosen: &Chosen) -> Result<Block, Refusal> {
    let ip = request.frame.ip;
    let mut emitter = Emitter {
        chosen,
        moved: request.moved,
        literals: Vec::new(),
        at: request.at.0,
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
    let entry = offset_of(Target::Node(Way::Fast, chosen.at)).ok_or(Refusal::Encode(ip))?;
    let mut entries = Vec::new();
    for (&n, plan) in &chosen.fast.plans {
        let offset = offset_of(Target::Node(Way::Fast, n)).ok_or(Refusal::Encode(ip))?;
        let original = CodeAddress(chosen.graph.nodes[n].instruction.ip());
        let Some(facts) = demanded(request, chosen, n) else {
            continue;
        };
        let guards: Vec<&[Bound]> = match plan {
            Plan::Direct(_) => vec![&[]],
            Plan::Guarded(all) => all.iter().map(|a| a.bounds.as_slice()).collect(),
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
    Ok(Block {
        bytes,
        entry,
        entries,
        resume,
        seen: chosen.seen,
        instructions: chosen.body.len() as u32,
        direct: count(|p| matches!(p, Plan::Direct(_))) as u32,
        guarded: count(|p| matches!(p, Plan::Guarded(_))) as u32,
        checked: chosen.checks.len() as u32,
        is_loop: chosen.is_loop,
        covers: (
            CodeAddress(ips.iter().copied().min().unwrap_or(ip.0)),
            CodeAddress(ips.iter().copied().max().unwrap_or(ip.0)),
        ),
    })
}

/// The conditions for a thread that enters at `n`; `None` if they can't be expressed.
fn demanded(request: &Request<'_>, chosen: &Chosen, n: usize) -> Option<Vec<Condition>> {
    let version = &chosen.fast;
    let facts = version.facts.get(&n)?;
    let needed = version.needed.get(&n).copied().unwrap_or(0);
    let mut conditions = Vec::new();
    for number in (0..FOLLOWED as u8).filter(|number| needed >> number & 1 != 0) {
        // If nothing is known about a register, the copy is right for all of its values.
        let Some(values) = facts[usize::from(number)] else {
            continue;
        };
        let register = Register(number);
        if register.as_slot().is_some() {
            let one = |r: Register| facts[r.index()].and_then(Values::only);
            let displacement = chosen.slots.as_ref()?.displacement(register)?;
            // The stack's address differs between threads; the distance from rbp does not.
            let slot = one(Register::RBP)?
                .wrapping_add(displacement)
                .wrapping_sub(one(Register::RSP)?);
            conditions.push(Condition::Stack(slot as i64, values.only()?));
        } else if values.is_dense() {
            let (low, high) = (values.low, values.high);
            conditions.push(Condition::Register(register, low, high));
        } else if n == chosen.at {
            // Not all values between the ends are allowed; the present value is.
            let value = request.registers.get(register);
            conditions.push(Condition::Register(register, value, value));
        } else {
            return None;
        }
    }
    // Within a called function, the thread's return addresses must be those of the copy's
    // calls.
    let mut instance = chosen.graph.nodes[n].instance;
    while chosen.is_loop
        && let Some(call) = chosen.graph.called(instance)
    {
        let start = chosen.graph.find(instance, call.target)?;
        let rsp = |n: usize| version.facts.get(&n)?[Register::RSP.index()]?.only();
        // The stack's address differs between threads; the distance from rsp does not.
        let slot = rsp(start)?.wrapping_sub(rsp(n)?) as i64;
        conditions.push(Condition::Stack(slot, call.back));
        instance = call.from;
    }
    Some(conditions)
}

impl<'a> Emitter<'a> {
    fn all(&mut self) {
        let chosen = self.chosen;
        self.version(Way::Fast, &chosen.body);
        let slow: BTreeSet<usize> = chosen.slow.facts.keys().copied().collect();
        self.version(Way::Slow, &slow);
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
    fn version(&mut self, way: Way, body: &BTreeSet<usize>) {
        let chosen = self.chosen;
        let order = order(&chosen.graph, body);
        for (place, &n) in order.iter().enumerate() {
            self.node(way, n, order.get(place + 1).copied());
        }
        for &n in &order {
            if let Some(Plan::Guarded(all)) = self.plans(way).plans.get(&n)
                && chosen.is_loop
            {
                self.otherwise(way, n, all);
            }
            self.cases(way, n);
            if way == Way::Slow {
                self.back(n);
            }
            if self.labels.contains_key(&Target::Astray(way, n)) {
                self.label(Target::Astray(way, n));
                let instruction = chosen.graph.nodes[n].instruction;
                let returns = instruction.flow_control() == FlowControl::Return;
                let goes = if returns {
                    instruction
                } else {
                    self.through(way, n)
                };
                self.put(goes, instruction.ip());
            }
        }
    }

    fn plans(&self, way: Way) -> &'a Version {
        match way {
            Way::Fast => &self.chosen.fast,
            Way::Slow => &self.chosen.slow,
        }
    }

    fn label(&mut self, target: Target) {
        self.labels.insert(target, self.items.len());
    }

    fn put(&mut self, instruction: Instruction, resume: u64) {
        self.items.push(Item {
            instruction,
            target: None,
            resume,
        });
    }

    fn put_made(&mut self, made: Result<Instruction, iced_x86::IcedError>, resume: u64) {
        match made {
            Ok(instruction) => self.put(instruction, resume),
            Err(_) => self.failed = true,
        }
    }

    fn branch(&mut self, code: Code, target: Target, resume: u64) {
        match Instruction::with_branch(code, 0) {
            Ok(instruction) => self.items.push(Item {
                instruction,
                target: Some(target),
                resume,
            }),
            Err(_) => self.failed = true,
        }
    }

    /// The address of a constant with this value.
    fn literal(&mut self, value: u64) -> u64 {
        let known = self.literals.iter().position(|&l| l == value);
        let place = known.unwrap_or_else(|| {
            self.literals.push(value);
            self.literals.len() - 1
        });
        self.at + 8 * place as u64
    }

    fn target(&self, way: Way, instance: u8, ip: u64) -> Target {
        match self.chosen.graph.find(instance, ip) {
            Some(n) if self.chosen.body.contains(&n) => Target::Node(way, n),
            _ => self.original(ip),
        }
    }

    fn original(&self, ip: u64) -> Target {
        if ip.abs_diff(self.at) < NEAR {
            Target::Original(ip)
        } else {
            Target::Far(ip)
        }
    }

    /// Continues at `ip`, with a jump unless its copy is next anyway.
    fn go_on(&mut self, way: Way, instance: u8, ip: u64, next: Option<usize>) {
        let target = self.target(way, instance, ip);
        if next.map(|next| Target::Node(way, next)) == Some(target) {
            return;
        }
        self.branch(Code::Jmp_rel32_64, target, ip);
    }

    /// Continues with the copy of the instruction's successor.
    fn follow(&mut self, way: Way, n: usize, next: Option<usize>) {
        let node = &self.chosen.graph.nodes[n];
        if node.instruction.flow_control() == FlowControl::Next {
            let after = node.instruction.next_ip();
            self.check(way, n, after);
            self.go_on(way, node.instance, after, next);
        }
    }

    /// Emits the comparison on which the facts after `n` are based.
    fn check(&mut self, way: Way, n: usize, after: u64) {
        let chosen = self.chosen;
        let Some(check) = chosen.checks.get(&n) else {
            return;
        };
        if way == Way::Slow && !chosen.returns.contains(&n) {
            return;
        }
        self.label(Target::Check(way, n));
        let instance = chosen.graph.nodes[n].instance;
        self.compare(check.register, check.value, after);
        match way {
            Way::Fast => {
                let slow = self.target(Way::Slow, instance, after);
                self.branch(Code::Jne_rel32_64, slow, after);
            }
            Way::Slow => {
                let mut fast = self.target(Way::Fast, instance, after);
                if self.slots_at(fast).next().is_some() {
                    fast = Target::Back(n);
                }
                self.branch(Code::Je_rel32_64, fast, after);
            }
        }
    }

    /// The values that slots of the frame must have where the copy is entered.
    fn slots_at(&self, target: Target) -> impl Iterator<Item = (u64, u64)> + use<'a> {
        let chosen = self.chosen;
        let facts = match target {
            Target::Node(_, n) => chosen.fast.facts.get(&n).zip(chosen.fast.needed.get(&n)),
            _ => None,
        };
        let slots = facts.zip(chosen.slots.as_ref()).into_iter();
        slots.flat_map(|((facts, needed), slots)| {
            let wanted = (16..FOLLOWED as u8).map(Register);
            let wanted = wanted.filter(move |r| needed & r.bit() != 0);
            wanted.filter_map(move |r| {
                let value = facts[r.index()].and_then(Values::only)?;
                Some((slots.displacement(r)?, value))
            })
        })
    }

    /// Returns to the fast copy, if the frame's slots have their expected values.
    fn back(&mut self, n: usize) {
        if !self.back_is_wanted(n) {
            return;
        }
        let node = &self.chosen.graph.nodes[n];
        let (instance, after) = (node.instance, node.instruction.next_ip());
        let fast = self.target(Way::Fast, instance, after);
        let slow = self.target(Way::Slow, instance, after);
        self.label(Target::Back(n));
        for (displacement, value) in self.slots_at(fast) {
            for (offset, half) in [(0, value as u32), (4, (value >> 32) as u32)] {
                let at = displacement.wrapping_add(offset) as i64;
                let place = MemoryOperand::with_base_displ(Iced::RBP, at);
                self.put_made(Instruction::with2(Code::Cmp_rm32_imm32, place, half), after);
                self.branch(Code::Jne_rel32_64, slow, after);
            }
        }
        self.branch(Code::Jmp_rel32_64, fast, after);
    }

    fn back_is_wanted(&self, n: usize) -> bool {
        self.items.iter().any(|i| i.target == Some(Target::Back(n)))
    }

    /// Emits the copy of one instruction. `next` is the instruction whose copy follows.
    fn node(&mut self, way: Way, n: usize, next: Option<usize>) {
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
            FlowControl::IndirectBranch if self.leads_on(way, n) => self.jump(way, n, next),
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
                        if chosen.is_loop && self.seldom(way, n, all).is_some() {
                            self.first_look(way, n, all);
                            instruction
                        } else {
                            if chosen.is_loop {
                                self.guard(way, n, 0, first);
                            }
                            displaced(instruction, first.displacement)
                        }
                    }
                };
                self.put_reaching(displaced, ip);
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
                });
                self.go_on(way, instance, instruction.next_ip(), next);
            }
            FlowControl::Call if is_kernel_call(&instruction) => {
                self.kernel_call(way, n, &instruction, next);
            }
            FlowControl::Call => self.call(way, n, &instruction, next),
            FlowControl::IndirectCall => {
                let elsewhere = self.original(ip);
                // The comparison changes the flags.
                if chosen.wanted.contains(&n) {
                    self.branch(Code::Jmp_rel32_64, elsewhere, ip);
                    return;
                }
                self.look(way, n, elsewhere);
                self.call(way, n, &instruction, next);
            }
            FlowControl::Return => self.give_back(way, n, &instruction, next),
            _ => self.put(instruction, ip),
        }
    }

    /// Compares the distance of a jump through a table with those that lead to code of the
    /// copy.
    fn switch(&mut self, way: Way, n: usize) {
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
    fn cases(&mut self, way: Way, n: usize) {
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

    /// Pushes what the call pushes: the original return address, so that an unwinder sees the
    /// original code.
    fn push_return(&mut self, call: &Instruction) {
        let literal = self.literal(call.next_ip());
        let place = MemoryOperand::with_base_displ(Iced::RIP, literal as i64);
        self.put_made(Instruction::with1(Code::Push_rm64, place), call.ip());
    }

    fn call(&mut self, way: Way, n: usize, call: &Instruction, next: Option<usize>) {
        self.push_return(call);
        let calls = &self.chosen.graph.calls;
        if let Some(inner) = calls.iter().position(|c| c.node == n) {
            self.go_on(way, inner as u8 + 1, calls[inner].target, next);
        } else {
            let callee = call.near_branch_target();
            self.branch(Code::Jmp_rel32_64, self.original(callee), callee);
        }
    }

    /// Emits a leaf's return: to the copy of its caller, if its return address leads there.
    fn give_back(&mut self, way: Way, n: usize, instruction: &Instruction, next: Option<usize>) {
        let ip = instruction.ip();
        let chosen = self.chosen;
        let call = chosen.graph.called(chosen.graph.nodes[n].instance);
        let target = call.map(|call| (call, self.target(way, call.from, call.back)));
        let (Some((call, Target::Node(_, after))), true) = (target, is_plain_return(instruction))
        else {
            self.put(*instruction, ip);
            return;
        };
        if self.plans(way).kept.contains(&n) {
            self.take_off(ip);
            self.go_on(way, call.from, call.back, next);
            return;
        }
        // The comparison changes the flags.
        if chosen.wanted.contains(&after) {
            self.put(*instruction, ip);
            return;
        }
        let back = call.back;
        for (offset, half) in [(0, back as u32), (4, (back >> 32) as u32)] {
            let place = MemoryOperand::with_base_displ(Iced::RSP, offset);
            self.put_made(Instruction::with2(Code::Cmp_rm32_imm32, place, half), ip);
            self.branch(Code::Jne_rel32_64, Target::Astray(way, n), ip);
        }
        // Marks that the code for the other case is needed; its position is set when it is
        // emitted.
        self.labels.insert(Target::Astray(way, n), usize::MAX);
        self.take_off(ip);
        self.go_on(way, call.from, back, next);
    }

    /// Pops the return address off the stack.
    fn take_off(&mut self, resume: u64) {
        let place = MemoryOperand::with_base_displ(Iced::RSP, 8);
        self.put_made(
            Instruction::with2(Code::Lea_r64_m, Iced::RSP, place),
            resume,
        );
    }

    /// Emits the comparisons of registers with the bounds of an alternative.
    fn guard(&mut self, way: Way, n: usize, number: usize, alternative: &Alternative) {
        let ip = self.chosen.graph.nodes[n].instruction.ip();
        let failed = Target::Fails(way, n, number);
        for bound in &alternative.bounds {
            let register = bound.register;
            if bound.low == bound.high && (bound.test_low || bound.test_high) {
                self.compare(register, bound.low, ip);
                self.branch(Code::Jne_rel32_64, failed, ip);
                continue;
            }
            if bound.low > 0 && bound.test_low {
                self.compare(register, bound.low, ip);
                self.branch(Code::Jb_rel32_64, failed, ip);
            }
            if bound.high < u64::MAX && bound.test_high {
                self.compare(register, bound.high, ip);
                self.branch(Code::Ja_rel32_64, failed, ip);
            }
        }
    }

    fn compare(&mut self, register: Register, value: u64, resume: u64) {
        let register = register.iced();
        let made = match i32::try_from(value as i64) {
            Ok(tiny) if i8::try_from(tiny).is_ok() => {
                Instruction::with2(Code::Cmp_rm64_imm8, register, tiny)
            }
            Ok(small) => Instruction::with2(Code::Cmp_rm64_imm32, register, small),
            Err(_) => {
                let literal = self.literal(value);
                let place = MemoryOperand::with_base_displ(Iced::RIP, literal as i64);
                Instruction::with2(Code::Cmp_r64_rm64, register, place)
            }
        };
        self.put_made(made, resume);
    }

    /// The bound for a first comparison, if the operand is seldom on the page.
    fn seldom<'b>(&self, way: Way, n: usize, all: &'b [Alternative]) -> Option<&'b Bound> {
        let [only] = all else { return None };
        let bound = only.bounds.last()?;
        let says_something = bound.low == bound.high
            || bound.low > 0 && bound.test_low
            || bound.high < u64::MAX && bound.test_high;
        (says_something && self.plans(way).rare.contains(&n)).then_some(bound)
    }

    /// Branches to the guard unless one comparison shows that the operand is not on the page.
    fn first_look(&mut self, way: Way, n: usize, all: &[Alternative]) {
        let Some(bound) = self.seldom(way, n, all) else {
            return;
        };
        let ip = self.chosen.graph.nodes[n].instruction.ip();
        let (value, code) = if bound.low == bound.high {
            (bound.low, Code::Je_rel32_64)
        } else if bound.low > 0 && bound.test_low {
            (bound.low, Code::Jae_rel32_64)
        } else {
            (bound.high, Code::Jbe_rel32_64)
        };
        self.compare(bound.register, value, ip);
        self.branch(code, Target::Maybe(way, n), ip);
    }

    /// Emits the other alternatives of a guard, and finally the unchanged instruction.
    fn otherwise(&mut self, way: Way, n: usize, alternatives: &[Alternative]) {
        let instruction = self.chosen.graph.nodes[n].instruction;
        let done = usize::from(self.seldom(way, n, alternatives).is_none());
        for (number, alternative) in alternatives.iter().enumerate().skip(done) {
            self.label(match number.checked_sub(1) {
                Some(before) => Target::Fails(way, n, before),
                None => Target::Maybe(way, n),
            });
            self.guard(way, n, number, alternative);
            self.put(
                displaced(instruction, alternative.displacement),
                instruction.ip(),
            );
            self.rejoin(way, n);
        }
        self.label(Target::Fails(way, n, alternatives.len() - 1));
        self.put(instruction, instruction.ip());
        self.rejoin(way, n);
    }

    /// Continues after the first copy of `n`, with its check if it has one.
    fn rejoin(&mut self, way: Way, n: usize) {
        let node = &self.chosen.graph.nodes[n];
        if node.instruction.flow_control() != FlowControl::Next {
            return;
        }
        let after = node.instruction.next_ip();
        if self.labels.contains_key(&Target::Check(way, n)) {
            self.branch(Code::Jmp_rel32_64, Target::Check(way, n), after);
        } else {
            self.go_on(way, node.instance, after, None);
        }
    }

    /// The bytes, and the offset of each item in them.
    fn encode(&mut self) -> Option<(Vec<u8>, Vec<u32>)> {
        let constants = (8 * self.literals.len()).next_multiple_of(16);
        let address_of = |place: usize| NOWHERE + 32 * place as u64;
        for (place, item) in self.items.iter_mut().enumerate() {
            item.instruction.set_ip(address_of(place));
            let target = match item.target {
                None => continue,
                Some(Target::Original(ip)) => ip,
                Some(target) => match self.labels.get(&target) {
                    Some(&label) if label != usize::MAX => address_of(label),
                    _ => return None,
                },
            };
            item.instruction.set_near_branch64(target);
        }
        let code: Vec<Instruction> = self.items.iter().map(|i| i.instruction).collect();
        let start = self.at + constants as u64;
        let options = BlockEncoderOptions::RETURN_NEW_INSTRUCTION_OFFSETS;
        let made = BlockEncoder::encode(64, InstructionBlock::new(&code, start), options).ok()?;
        let mut bytes = Vec::with_capacity(constants + made.code_buffer.len());
        for literal in &self.literals {
            bytes.extend_from_slice(&literal.to_le_bytes());
        }
        bytes.resize(constants, 0xcc);
        bytes.extend_from_slice(&made.code_buffer);
        let offsets: Option<Vec<u32>> = made
            .new_instruction_offsets
            .iter()
            .map(|&offset| offset.checked_add(constants as u32))
            .collect();
        Some((bytes, offsets?))
    }
}

fn displaced(mut instruction: Instruction, displacement: u64) -> Instruction {
    instruction.set_memory_displacement64(displacement);
    if instruction.memory_base() != Iced::RIP {
        instruction.set_memory_displ_size(8);
    }
    instruction
}
