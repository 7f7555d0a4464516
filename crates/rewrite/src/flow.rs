//! The instructions of a function, or of a leaf function within its caller, and
//! how control goes from one to the next.

use crate::effects::Effects;
use crate::live::Flags;
use crate::request::{Code, Frame, Memory};
use crate::table::{Table, table};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use alloc::{collections::BTreeSet, vec};
use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory};

/// Instructions beyond this are left out; threads leave the copy there.
const MOST: usize = 8192;

/// Calls whose functions are copied along; more are left to the original code.
const MOST_CALLS: usize = 64;

/// Calls within calls are copied along so far.
const DEEPEST: usize = 4;

/// The function that the loop is in. Others are those that it calls, one for each
/// call.
pub(crate) const OUTER: u8 = 0;

/// One instruction.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub instruction: Instruction,
    /// `OUTER`, or 1 + the number of the call.
    pub instance: u8,
    /// Where control can go within the graph.
    pub next: Vec<usize>,
    pub before: Vec<usize>,
    /// Whether it can also go elsewhere.
    pub exits: bool,
    pub effects: Effects,
    pub flags: Flags,
}

/// See the module's head.
#[derive(Debug)]
pub(crate) struct Graph {
    pub nodes: Vec<Node>,
    index: BTreeMap<(u8, u64), usize>,
    /// The calls whose functions are copied along.
    pub calls: Vec<Called>,
    /// Jumps through tables.
    pub tables: BTreeMap<usize, Table>,
}

/// A call to a function that is copied along.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Called {
    /// The call.
    pub node: usize,
    /// Where it returns to.
    pub back: u64,
    /// The function that it calls.
    pub target: u64,
    /// The function that it is in.
    pub from: u8,
}

/// How control leaves an instruction.
struct Ways {
    /// Where it goes by itself.
    targets: Vec<u64>,
    /// Whether also elsewhere, or back to here after a call.
    exits: bool,
    /// More code, which a call returns to.
    after: Option<u64>,
}

/// Whether a copy of the instruction does what the original does.
pub(crate) fn can_be_copied(i: &Instruction) -> bool {
    match i.flow_control() {
        FlowControl::Next => true,
        FlowControl::UnconditionalBranch => i.is_jmp_short_or_near(),
        FlowControl::ConditionalBranch => {
            i.is_jcc_short_or_near() || i.is_loop() || i.is_loopcc() || i.is_jcx_short()
        }
        // One through memory might fault, but then it has done nothing yet.
        FlowControl::IndirectBranch => i.is_jmp_near_indirect(),
        FlowControl::Return => i.mnemonic() == iced_x86::Mnemonic::Ret,
        FlowControl::Call => i.is_call_near(),
        // Between the push and the jump that stand for an indirect call there would
        // be no place in the original code to go back to.
        _ => false,
    }
}

fn ways(i: &Instruction) -> Ways {
    let next = i.next_ip();
    let (targets, exits, after) = match i.flow_control() {
        FlowControl::Next => (vec![next], false, None),
        FlowControl::UnconditionalBranch => (vec![i.near_branch_target()], false, None),
        FlowControl::ConditionalBranch => (vec![next, i.near_branch_target()], false, None),
        FlowControl::Call | FlowControl::IndirectCall => (vec![], true, Some(next)),
        _ => (vec![], true, None),
    };
    Ways {
        targets,
        exits,
        after,
    }
}

impl Graph {
    /// The instructions of one function, and of those in `callees` that it calls.
    pub(crate) fn of(frame: &Frame<'_>, callees: &[Code<'_>], memory: Memory<'_>) -> Self {
        let mut graph = Self {
            nodes: Vec::new(),
            index: BTreeMap::new(),
            calls: Vec::new(),
            tables: BTreeMap::new(),
        };
        graph.walk(&frame.code, frame.ip.0, OUTER, memory);
        // Those that are found on the way come behind.
        let mut node = 0;
        while node < graph.nodes.len() {
            graph.follow_call(frame, callees, node, memory);
            node += 1;
        }
        graph.link();
        graph
    }

    /// Copies the function along that an instruction calls.
    fn follow_call(
        &mut self,
        frame: &Frame<'_>,
        callees: &[Code<'_>],
        node: usize,
        memory: Memory<'_>,
    ) {
        let Node {
            instruction: call,
            instance: from,
            ..
        } = self.nodes[node];
        if !call.is_call_near() || self.calls.len() == MOST_CALLS {
            return;
        }
        let target = call.near_branch_target();
        let code = callees.iter().find(|c| c.start.0 == target);
        let returns = self.find(from, call.next_ip()).is_some();
        let (Some(code), true) = (code, returns) else {
            return;
        };
        let mut depth = 1;
        let mut outer = from;
        while let Some(call) = self.called(outer) {
            // A function within itself has no end.
            if call.target == target || depth == DEEPEST {
                return;
            }
            outer = call.from;
            depth += 1;
        }
        if target == frame.code.start.0 {
            return;
        }
        self.calls.push(Called {
            node,
            back: call.next_ip(),
            target,
            from,
        });
        self.walk(code, target, self.calls.len() as u8, memory);
    }

    /// The function that the call in `from` which returns to `back` leads to.
    pub(crate) fn instance(&self, from: u8, back: u64) -> Option<u8> {
        let fits = |c: &Called| c.from == from && c.back == back;
        let call = self.calls.iter().position(fits)?;
        u8::try_from(call + 1).ok()
    }

    /// The call that a node's function was copied for.
    pub(crate) fn called(&self, instance: u8) -> Option<&Called> {
        self.calls.get(usize::from(instance).checked_sub(1)?)
    }

    pub(crate) fn find(&self, instance: u8, ip: u64) -> Option<usize> {
        self.index.get(&(instance, ip)).copied()
    }

    /// Decodes what can be reached from the start of `code` and from `ip`.
    fn walk(&mut self, code: &Code<'_>, ip: u64, instance: u8, memory: Memory<'_>) {
        let mut factory = InstructionInfoFactory::new();
        let mut decoder = Decoder::with_ip(64, code.bytes, code.start.0, DecoderOptions::NONE);
        // The code around `ip` matters most if there is too much.
        let mut open = vec![code.start.0, ip];
        while let Some(ip) = open.pop() {
            let known = self.index.contains_key(&(instance, ip));
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
            let ways = ways(&instruction);
            open.extend(&ways.targets);
            open.extend(ways.after);
            if !can_be_copied(&instruction) {
                // A system call goes on behind it.
                open.push(instruction.next_ip());
                continue;
            }
            let before = self.nodes.iter().rev().map(|n| &n.instruction);
            if let Some(table) = table(&instruction, before, code, memory) {
                open.extend(&table.targets);
                self.tables.insert(self.nodes.len(), table);
            }
            self.index.insert((instance, ip), self.nodes.len());
            self.nodes.push(Node {
                effects: Effects::of(&instruction, &mut factory),
                flags: Flags::of(&instruction),
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
            let ways = ways(&node.instruction);
            let instance = node.instance;
            let (mut next, mut exits) = (Vec::new(), ways.exits);
            for target in ways.targets {
                match self.find(instance, target) {
                    Some(found) => next.push(found),
                    None => exits = true,
                }
            }
            if let Some(table) = self.tables.get(&at) {
                next.extend(table.targets.iter().filter_map(|&t| self.find(instance, t)));
            }
            let inner = self.calls.iter().position(|c| c.node == at);
            if let Some(inner) = inner {
                let target = node.instruction.near_branch_target();
                next.extend(self.find(inner as u8 + 1, target));
                exits = next.is_empty();
            } else if let Some(call) = self.called(instance)
                && is_plain_return(&node.instruction)
            {
                // One that changed its return address leaves the copy: the copy of
                // the return looks.
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

    /// Makes calls do what they do if the function called returns and keeps what it
    /// has to keep: for guesses only.
    pub(crate) fn pass_calls(&mut self) {
        for n in 0..self.nodes.len() {
            let i = self.nodes[n].instruction;
            let after = self.find(self.nodes[n].instance, i.next_ip());
            if let (true, Some(after)) = (i.is_call_near(), after) {
                self.nodes[n].effects = Effects::of_called();
                self.nodes[n].next.push(after);
                self.nodes[after].before.push(n);
            }
        }
    }

    /// The loops around `at`, the outermost first.
    pub(crate) fn loops(&self, at: usize) -> Vec<BTreeSet<usize>> {
        let mut loops = Vec::new();
        let mut within: BTreeSet<usize> = (0..self.nodes.len()).collect();
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
            within = body.clone();
            loops.push(body);
            for head in &heads {
                within.remove(head);
            }
            if heads.is_empty() || heads.contains(&at) {
                return loops;
            }
        }
    }

    /// What lies on cycles through `at` within a set; empty if none does.
    fn cycle(&self, at: usize, within: &BTreeSet<usize>) -> BTreeSet<usize> {
        let forward = self.reach(at, within, |n| &n.next);
        let backward = self.reach(at, within, |n| &n.before);
        forward.intersection(&backward).copied().collect()
    }

    /// What is reached from `at` in at least one step.
    fn reach(
        &self,
        at: usize,
        within: &BTreeSet<usize>,
        ways: impl Fn(&Node) -> &Vec<usize>,
    ) -> BTreeSet<usize> {
        let mut reached = BTreeSet::new();
        let mut open = vec![at];
        while let Some(n) = open.pop() {
            for &next in ways(&self.nodes[n]) {
                if within.contains(&next) && reached.insert(next) {
                    open.push(next);
                }
            }
        }
        reached
    }
}

/// A return that takes nothing but the return address off the stack.
pub(crate) fn is_plain_return(i: &Instruction) -> bool {
    i.mnemonic() == iced_x86::Mnemonic::Ret && i.op_count() == 0
}
