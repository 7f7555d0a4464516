//! The instructions of a function, and of functions that are copied into it, and the control
//! flow between them.

use crate::effects::Effects;
use crate::index::Index;
use crate::kernel::{FLAGS_OF_KERNEL_CALL, is_harmless, is_kernel_call, number};
use crate::nodes::Nodes;
use crate::pointers::{Context, is_through};
use crate::reach::has_register;
use crate::request::{Code, Frame, Memory, Request};
use crate::table::{Table, table};
use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;
use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Register as Part};
use sunder_x86::{Flags, Manual};

/// The most instructions of a graph. Threads leave the copy where it ends.
const MOST: usize = 8192;

/// The most calls whose functions are copied; further ones run the original functions.
const MOST_CALLS: usize = 64;

/// With this many instructions, no more functions are copied that are called through
/// pointers: those of libraries are left out first, so that a loop can still be copied.
const MOST_THROUGH: usize = 900;
/// The usual length of an instruction in bytes.
const LENGTH: usize = 4;

/// The most levels of calls within calls whose functions are copied.
const DEEPEST: usize = 4;

/// The instance of the function that contains the loop. Each call whose function is copied has
/// an instance of its own.
pub(crate) const OUTER: u8 = 0;

/// One instruction.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub instruction: Instruction,
    /// [`OUTER`], or 1 + the number of the call.
    pub instance: u8,
    /// The instructions of the graph to which control can go.
    pub next: Vec<usize>,
    pub before: Vec<usize>,
    /// Whether control can also leave the graph.
    pub exits: bool,
    pub effects: Effects,
    pub flags: Flags,
}

/// A control-flow graph.
#[derive(Clone, Debug)]
pub(crate) struct Graph {
    pub nodes: Vec<Node>,
    index: Index,
    /// The calls whose functions are copied.
    pub calls: Vec<Called>,
    /// Jumps through tables.
    pub tables: BTreeMap<usize, Table>,
    /// Calls and jumps through pointers with copied targets, and the addresses of these.
    pub through: BTreeMap<usize, Vec<u64>>,
}

/// A call whose function is copied.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Called {
    /// The call instruction.
    pub node: usize,
    /// The return address.
    pub back: u64,
    /// The called function.
    pub target: u64,
    /// The instance that contains the call.
    pub from: u8,
}

/// Where control goes after an instruction.
struct Successors {
    /// The targets within the code.
    targets: Vec<u64>,
    /// Whether control can also leave the graph, or returns here after a call.
    exits: bool,
    /// The return address of a call, at which decoding continues.
    after: Option<u64>,
}

/// Whether the copied instruction does the same as the original.
pub(crate) fn can_be_copied(i: &Instruction) -> bool {
    match i.flow_control() {
        FlowControl::Next => true,
        FlowControl::UnconditionalBranch => i.is_jmp_short_or_near(),
        FlowControl::ConditionalBranch => {
            i.is_jcc_short_or_near() || i.is_loop() || i.is_loopcc() || i.is_jcx_short()
        }
        // A jump through memory may fault, but then it has changed nothing yet.
        FlowControl::IndirectBranch => i.is_jmp_near_indirect(),
        FlowControl::Return => i.mnemonic() == iced_x86::Mnemonic::Ret,
        FlowControl::Call => i.is_call_near(),
        // Copied as a push and a jump. What has `rsp` in a register operand would change between.
        FlowControl::IndirectCall => is_through(i) && i.op0_register() != Part::RSP,
        _ => false,
    }
}

/// Whether control returns after it, although a copy may have to leave for it.
fn can_be_passed(i: &Instruction) -> bool {
    i.is_call_near_indirect() || is_kernel_call(i)
}

fn successors(i: &Instruction) -> Successors {
    let next = i.next_ip();
    let (targets, exits, after) = match i.flow_control() {
        FlowControl::Next => (vec![next], false, None),
        FlowControl::UnconditionalBranch => (vec![i.near_branch_target()], false, None),
        FlowControl::ConditionalBranch => (vec![next, i.near_branch_target()], false, None),
        FlowControl::Call | FlowControl::IndirectCall => (vec![], true, Some(next)),
        _ => (vec![], true, None),
    };
    Successors {
        targets,
        exits,
        after,
    }
}

impl Graph {
    /// The graph of a function, and of those functions of `around` that it calls.
    pub(crate) fn of(frame: &Frame<'_>, context: &Context<'_>) -> Self {
        let mut graph = Self {
            nodes: Vec::new(),
            index: Index::default(),
            calls: Vec::new(),
            tables: BTreeMap::new(),
            through: BTreeMap::new(),
        };
        graph.walk(&frame.code, frame.ip.0, OUTER, context);
        // Functions found on the way are appended to the nodes.
        let mut node = 0;
        while node < graph.nodes.len() {
            graph.follow_call(frame, context, node);
            node += 1;
        }
        graph.link();
        graph.link_kernel_calls();
        graph
    }

    /// The graph of the function `depth` callers above that of the fault, and the instruction
    /// that faulted in it.
    pub(crate) fn within(
        request: &Request<'_>,
        depth: usize,
        context: &Context<'_>,
    ) -> Option<(Self, usize)> {
        let callers = request.callers.get(..depth)?;
        let outer = callers.last().unwrap_or(&request.frame);
        let graph = Self::of(outer, context);
        let mut instance = OUTER;
        for (n, caller) in callers.iter().enumerate().rev() {
            let inner = n.checked_sub(1).and_then(|n| callers.get(n));
            let inner = inner.unwrap_or(&request.frame);
            instance = graph.instance(instance, caller.ip.0, inner)?;
        }
        let at = graph.find(instance, request.frame.ip.0)?;
        Some((graph, at))
    }

    /// Adds the functions that an instruction calls, or that the function ends in by a jump.
    fn follow_call(&mut self, frame: &Frame<'_>, context: &Context<'_>, node: usize) {
        let Node {
            instruction: i,
            instance: from,
            ..
        } = self.nodes[node];
        let calls = i.is_call_near() || i.is_call_near_indirect();
        let ends_in = i.is_jmp_near_indirect() || i.is_jmp_short_or_near();
        if !(calls || ends_in && from != OUTER) || self.tables.contains_key(&node) {
            return;
        }
        let through = is_through(&i);
        let targets = if through {
            context.targets(&i)
        } else {
            vec![i.near_branch_target()]
        };
        for target in targets {
            let Some(code) = context.code(target) else {
                continue;
            };
            let more = self.nodes.len() + code.bytes.len() / LENGTH;
            let too_much = (through || ends_in) && more > MOST_THROUGH;
            if target == frame.code.start.0 || too_much && !context.is_in(target) {
                continue;
            }
            let instance = if ends_in {
                from
            } else if self.may_call(&i, from, target) {
                self.calls.push(Called {
                    node,
                    back: i.next_ip(),
                    target,
                    from,
                });
                self.calls.len() as u8
            } else {
                continue;
            };
            if through {
                self.through.entry(node).or_default().push(target);
            }
            self.walk(code, target, instance, context);
        }
    }

    /// Whether there is room for one more function, and the calls do not recurse.
    fn may_call(&self, call: &Instruction, from: u8, target: u64) -> bool {
        if self.calls.len() == MOST_CALLS || self.find(from, call.next_ip()).is_none() {
            return false;
        }
        let mut depth = 1;
        let mut outer = from;
        while let Some(call) = self.called(outer) {
            // A function that calls itself would be copied without end.
            if call.target == target || depth == DEEPEST {
                return false;
            }
            outer = call.from;
            depth += 1;
        }
        true
    }

    /// The instance of the call in `from` with the return address `back` that led to `inner`.
    fn instance(&self, from: u8, back: u64, inner: &Frame<'_>) -> Option<u8> {
        let calls = self.calls.iter().zip(1u8..);
        let mut found = calls.filter(|(call, instance)| {
            let fits = call.from == from && call.back == back;
            fits && self.find(*instance, inner.ip.0).is_some()
        });
        let first = found.clone().next();
        // A function that ends in another by a jump contains it.
        let own = found.find(|(call, _)| call.target == inner.code.start.0);
        own.or(first).map(|(_, instance)| instance)
    }

    /// The instances that were copied for a call, with the functions' addresses. The most probable
    /// comes first.
    pub(crate) fn instances(&self, node: usize) -> impl Iterator<Item = (u8, u64)> + '_ {
        let calls = self.calls.iter().zip(1u8..);
        calls.filter_map(move |(c, instance)| (c.node == node).then_some((instance, c.target)))
    }

    /// The call for which an instance was copied.
    pub(crate) fn called(&self, instance: u8) -> Option<&Called> {
        self.calls.get(usize::from(instance).checked_sub(1)?)
    }

    pub(crate) fn find(&self, instance: u8, ip: u64) -> Option<usize> {
        self.index.get(instance, ip)
    }

    /// Decodes what can be reached from the start of `code` and from `ip`.
    fn walk(&mut self, code: &Code<'_>, ip: u64, instance: u8, context: &Context<'_>) {
        let mut manual = Manual::new();
        let mut decoder = Decoder::with_ip(64, code.bytes, code.start.0, DecoderOptions::NONE);
        // `ip` is decoded first: its surroundings matter most if the code is too long.
        let mut open = vec![code.start.0, ip];
        while let Some(ip) = open.pop() {
            let known = self.find(instance, ip).is_some();
            if known || !code.contains(ip) || self.nodes.len() >= MOST {
                continue;
            }
            let at = ip.wrapping_sub(code.start.0) as usize;
            if decoder.set_position(at).is_err() {
                continue;
            }
            decoder.set_ip(ip);
            let instruction = decoder.decode();
            if instruction.is_invalid() {
                continue;
            }
            let successors = successors(&instruction);
            open.extend(&successors.targets);
            open.extend(successors.after);
            let reached = !context.is_far(&instruction)
                || has_register(&instruction, || manual.does(&instruction));
            if !reached || !can_be_copied(&instruction) && !can_be_passed(&instruction) {
                open.push(instruction.next_ip());
                continue;
            }
            let before = self.nodes.iter().rev().map(|n| &n.instruction);
            if let Some(table) = table(&instruction, before, code, context.memory) {
                open.extend(&table.targets);
                self.tables.insert(self.nodes.len(), table);
            }
            self.index.insert(instance, code, ip, self.nodes.len());
            let (effects, flags) = if is_kernel_call(&instruction) {
                (Effects::of_kernel_call(), FLAGS_OF_KERNEL_CALL)
            } else {
                let effects = Effects::of(&instruction, &manual.does(&instruction));
                (effects, Flags::of(&instruction))
            };
            self.nodes.push(Node {
                effects,
                flags,
                instruction,
                instance,
                next: Vec::new(),
                before: Vec::new(),
                exits: false,
            });
        }
    }

    fn link(&mut self) {
        for at in 0..self.nodes.len() {
            let node = &self.nodes[at];
            let successors = successors(&node.instruction);
            let instance = node.instance;
            let (mut next, mut exits) = (Vec::new(), successors.exits);
            for target in successors.targets {
                match self.find(instance, target) {
                    Some(found) => next.push(found),
                    None => exits = true,
                }
            }
            if let Some(table) = self.tables.get(&at) {
                next.extend(table.targets.iter().filter_map(|&t| self.find(instance, t)));
            }
            // Only calls have instances; looking through all calls for every node takes long.
            let inner: Vec<(u8, u64)> = match successors.after {
                Some(_) => self.instances(at).collect(),
                None => Vec::new(),
            };
            if !inner.is_empty() {
                // With another pointer the thread leaves the copy. A call preserves no flags.
                let starts = inner.into_iter();
                next.extend(starts.filter_map(|(instance, at)| self.find(instance, at)));
                exits = next.is_empty();
            } else if let Some(targets) = self.through.get(&at) {
                next.extend(targets.iter().filter_map(|&t| self.find(instance, t)));
                exits = next.is_empty();
            } else if let Some(call) = self.called(instance)
                && is_plain_return(&node.instruction)
            {
                // A function that changed its return address leaves the copy: the copy of the
                // return compares it.
                next.extend(self.find(call.from, call.back));
                exits = false;
            }
            for &n in &next {
                self.nodes[n].before.push(at);
            }
            self.nodes[at].next = next;
            self.nodes[at].exits = exits;
        }
    }

    /// Links the kernel calls that the copy makes. They are recognised by their numbers.
    fn link_kernel_calls(&mut self) {
        for at in 0..self.nodes.len() {
            let node = &self.nodes[at];
            let (call, instance) = (node.instruction, node.instance);
            let [before] = node.before[..] else { continue };
            let number = number(&call, &self.nodes[before].instruction);
            let after = self.find(instance, call.next_ip());
            if let (true, Some(after)) = (number.is_some_and(is_harmless), after) {
                self.nodes[at].exits = false;
                self.nodes[at].next.push(after);
                self.nodes[after].before.push(at);
            }
        }
    }

    /// Gives calls the effects of functions that return and follow the calling convention. For
    /// guesses only.
    pub(crate) fn pass_calls(&mut self) {
        for n in 0..self.nodes.len() {
            let node = &self.nodes[n];
            let i = node.instruction;
            let leaves = node.next.is_empty() && (i.is_call_near() || can_be_passed(&i));
            let after = self.find(node.instance, i.next_ip());
            if let (true, Some(after)) = (leaves, after) {
                if !is_kernel_call(&i) {
                    self.nodes[n].effects = Effects::of_called();
                }
                self.nodes[n].next.push(after);
                self.nodes[after].before.push(n);
            }
        }
    }

    /// The frame that lies `depth` callers above the one that faulted, if its current instruction is in a
    /// loop of its own function.
    pub(crate) fn looped<'r, 'a>(request: &'r Request<'a>, depth: usize) -> Option<&'r Frame<'a>> {
        let frame = match depth.checked_sub(1) {
            None => &request.frame,
            Some(caller) => request.callers.get(caller)?,
        };
        let known = request.loops.and_then(|loops| loops.get(depth).copied());
        let is_in_loop = known.unwrap_or_else(|| Self::is_in_loop(frame, request.memory));
        is_in_loop.then_some(frame)
    }

    fn is_in_loop(frame: &Frame<'_>, memory: Memory<'_>) -> bool {
        let mut graph = Self::of(frame, &Context::alone(memory));
        graph.pass_calls();
        let all = vec![true; graph.nodes.len()];
        let at = graph.find(OUTER, frame.ip.0);
        at.is_some_and(|at| !graph.cycle(at, &all).is_empty())
    }

    /// For each node, whether control can get from it to where `code` returns or jumps out of itself.
    pub(crate) fn before_ends(&self, code: &Code<'_>) -> Vec<bool> {
        let ends = |node: &Node| {
            let i = &node.instruction;
            match i.flow_control() {
                FlowControl::Return => true,
                FlowControl::IndirectBranch => node.next.is_empty(),
                FlowControl::UnconditionalBranch | FlowControl::ConditionalBranch => {
                    !code.contains(i.near_branch_target())
                }
                _ => false,
            }
        };
        let mut before: Vec<bool> = self.nodes.iter().map(ends).collect();
        let mut open: Vec<usize> = (0..before.len()).filter(|&n| before[n]).collect();
        while let Some(n) = open.pop() {
            for &earlier in &self.nodes[n].before {
                if !before[earlier] {
                    before[earlier] = true;
                    open.push(earlier);
                }
            }
        }
        before
    }

    /// The loops around `at`, the outermost first.
    pub(crate) fn loops(&self, at: usize) -> Vec<Nodes> {
        let mut loops = Vec::new();
        let mut within = vec![true; self.nodes.len()];
        loop {
            let body = self.cycle(at, &within);
            if body.is_empty() {
                return loops;
            }
            let heads: Vec<usize> = body
                .iter()
                .copied()
                .filter(|&n| self.nodes[n].before.iter().any(|b| !body.contains(b)))
                .collect();
            within = vec![false; self.nodes.len()];
            for &inner in body.iter().filter(|n| !heads.contains(n)) {
                within[inner] = true;
            }
            loops.push(body);
            if heads.is_empty() || heads.contains(&at) {
                return loops;
            }
        }
    }

    /// The nodes of `body` that are on cycles through `at` within it; empty if there are none.
    pub(crate) fn cycle_within(&self, at: usize, body: &Nodes) -> Nodes {
        let within: Vec<bool> = (0..self.nodes.len()).map(|n| body.contains(&n)).collect();
        self.cycle(at, &within)
    }

    /// The nodes within `within` that are on cycles through `at`; empty if there are none.
    fn cycle(&self, at: usize, within: &[bool]) -> Nodes {
        let forward = self.reach(at, within, |n| &n.next);
        let backward = self.reach(at, within, |n| &n.before);
        let both = |&n: &usize| forward[n] && backward[n];
        (0..self.nodes.len()).filter(both).collect()
    }

    /// The nodes that are reached from `at` in at least one step.
    fn reach(&self, at: usize, within: &[bool], ways: impl Fn(&Node) -> &Vec<usize>) -> Vec<bool> {
        let mut reached = vec![false; self.nodes.len()];
        let mut open = vec![at];
        while let Some(n) = open.pop() {
            for &next in ways(&self.nodes[n]) {
                if within[next] && !reached[next] {
                    reached[next] = true;
                    open.push(next);
                }
            }
        }
        reached
    }
}

/// A return that pops nothing but the return address.
pub(crate) fn is_plain_return(i: &Instruction) -> bool {
    i.mnemonic() == iced_x86::Mnemonic::Ret && i.op_count() == 0
}
