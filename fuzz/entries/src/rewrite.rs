//! Copies of random loops, compared with the original. The bytes of a page have moved; each access
//! to it faults, and the rewriter answers the fault. In the end registers, flags and memory must be
//! those of a run without a move. Now and then the thread is put back into the original code, as by
//! a signal. The loop calls functions directly, through pointers that may change, through a
//! linker's stub, and by a jump at the end of a function.

mod generate;

use crate::answer;
use crate::input::Input;
use crate::machine::{Flags, Machine, Stop, decode, fill};
use core::cell::RefCell;
use generate::{
    CACHE, END, FUNCTIONS, GROUP, GROUP_BYTES, INNER, PAGE, POOL, Program, TEXT, UNDERLAY, list,
    machine, program,
};
use iced_x86::{FlowControl, Instruction, RflagsBits};
use sunder_access::{Address, CodeAddress, Span};
use sunder_rewrite::{
    Block, Condition, Draft, Frame, Memory, Met, MovedPage, Registers, Request, Rule, Seen,
    more_targets, return_slot,
};
use sunder_x86::Manual;

/// The most instructions that are executed.
const MOST_STEPS: usize = 4000;
const MOST_FAULTS: usize = 200;

/// Status flags.
const STATUS: u32 =
    RflagsBits::OF | RflagsBits::SF | RflagsBits::ZF | RflagsBits::CF | RflagsBits::PF;

/// The end of a run: the machine, and the flags that may have any value.
struct Ended {
    machine: Machine,
    unknown: u32,
}

impl Ended {
    /// The flags, with those that may have any value set to the same in all runs.
    fn flags(&self, of: Flags) -> Flags {
        let known = |bit: u32, flag: bool| self.unknown & bit == 0 && flag;
        Flags {
            carry: known(RflagsBits::CF, of.carry),
            zero: known(RflagsBits::ZF, of.zero),
            sign: known(RflagsBits::SF, of.sign),
            overflow: known(RflagsBits::OF, of.overflow),
            parity: known(RflagsBits::PF, of.parity),
        }
    }
}

/// Makes a loop of the bytes, runs it without a move and with one, and compares.
///
/// # Panics
/// If the results differ, or a copy breaks a guarantee.
pub fn rewrite(bytes: &[u8]) {
    let mut input = Input(bytes);
    let rounds = input.byte() % 8 + 1;
    let thrown = input.byte();
    let start = machine(&mut input, rounds);
    let inner_bytes = input.byte() % 64;
    let inner = Input(input.take(inner_bytes.into()));
    let other_bytes = input.byte() % 32;
    let other = Input(input.take(other_bytes.into()));
    let ends = input.byte();
    let Some(program) = program([input, inner, other], ends) else {
        return;
    };
    let Some(ended) = run_as_it_is(&program, start.clone()) else {
        return;
    };
    let wanted = &ended.machine;
    if let Some(got) = (Moved::new(&program, thrown)).run(start) {
        let listing = || {
            let starts = (0..FUNCTIONS as u64).map(|n| TEXT + n * INNER);
            let all: Vec<String> = starts.map(|start| list(&program, start)).collect();
            all.join("--\n")
        };
        assert_eq!(got.general, wanted.general, "{}", listing());
        let (flags, flags_wanted) = (ended.flags(got.flags), ended.flags(wanted.flags));
        assert_eq!(flags, flags_wanted, "{}", listing());
        for (at, byte) in &got.memory {
            let at = home(*at);
            let wanted = wanted.byte(at, fill);
            assert!(
                *byte == wanted || is_ours(at),
                "{at:#x}: {byte} for {wanted}\n{}",
                listing()
            );
        }
        for at in wanted.memory.keys() {
            let there = place(*at);
            assert_eq!(
                got.byte(there, moved_fill),
                wanted.byte(*at, fill),
                "{at:#x}"
            );
        }
    }
}

/// The address of a byte of the page after the move.
fn place(at: u64) -> u64 {
    match at.wrapping_sub(PAGE) {
        offset @ GROUP..0x60 => POOL + offset,
        offset if offset < 4096 => UNDERLAY + offset,
        _ => at,
    }
}

/// The address of a byte before the move.
fn home(at: u64) -> u64 {
    let offset = at & 0xfff;
    match at & !0xfff {
        UNDERLAY | POOL if place(PAGE + offset) == at => PAGE + offset,
        _ => at,
    }
}

fn moved_fill(at: u64) -> u8 {
    fill(home(at))
}

/// Whether the memory exists for the copies only.
fn is_ours(at: u64) -> bool {
    (CACHE..PAGE).contains(&at) || (UNDERLAY..POOL + 0x1000).contains(&at)
}

/// The machine at the end. `None` if the run does not end, or if a function does not return to its
/// call. Flags do not survive a return, because its copy compares, nor a call through a pointer,
/// whose copy compares, too; so `None` as well if code depends on them after one.
fn run_as_it_is(program: &Program, mut machine: Machine) -> Option<Ended> {
    let mut calls = vec![END];
    let mut unknown = 0;
    let mut manual = Manual::new();
    for _ in 0..MOST_STEPS {
        if machine.ip == END {
            return Some(Ended { machine, unknown });
        }
        let i = program.instruction(machine.ip)?;
        if i.rflags_read() & unknown != 0 {
            return None;
        }
        unknown &= !i.rflags_modified();
        let touched = RefCell::new(Vec::new());
        let allowed = |at: u64, width: u64| {
            touched.borrow_mut().push((at, width));
            let last = at.checked_add(width);
            last.is_some_and(|last| !is_ours(at) && !is_ours(last) && !(TEXT..CACHE).contains(&at))
        };
        let before = (machine.general, machine.flags);
        machine.execute(&i, &allowed).ok()?;
        let touched = touched.borrow();
        answer::check(&mut manual, &i, (&before.0, before.1), &machine, &touched);
        match i.flow_control() {
            FlowControl::Call => calls.push(i.next_ip()),
            FlowControl::IndirectCall => {
                calls.push(i.next_ip());
                unknown = STATUS;
            }
            FlowControl::IndirectBranch => unknown = STATUS,
            FlowControl::Return if calls.pop() != Some(machine.ip) => return None,
            _ => {}
        }
    }
    None
}

/// The program after the move.
struct Moved<'a> {
    program: &'a Program,
    moved: MovedPage,
    blocks: Vec<(u64, Block)>,
    seen: Vec<Seen>,
    met: Vec<Met>,
    next: u64,
    thrown: u8,
}

impl<'a> Moved<'a> {
    fn new(program: &'a Program, thrown: u8) -> Self {
        let rule = |from: u64, len: u64| Rule {
            bytes: Span {
                start: Address(PAGE + from),
                len,
            },
            delta: place(PAGE + from).wrapping_sub(PAGE + from) as i64,
        };
        let rest = GROUP + GROUP_BYTES;
        Self {
            program,
            moved: MovedPage {
                page: Span {
                    start: Address(PAGE),
                    len: 4096,
                },
                rules: vec![
                    rule(0, GROUP),
                    rule(GROUP, GROUP_BYTES),
                    rule(rest, 4096 - rest),
                ],
            },
            blocks: Vec::new(),
            seen: Vec::new(),
            met: Vec::new(),
            next: CACHE,
            thrown,
        }
    }

    /// The machine at the end; `None` if an access could not be redirected, or if the run takes too
    /// long.
    fn run(mut self, mut machine: Machine) -> Option<Machine> {
        for at in PAGE..PAGE + 4096 {
            machine.memory.insert(place(at), fill(at));
        }
        let mut faults = 0;
        // A copy has more instructions than the original.
        for number in 0..8 * MOST_STEPS {
            if machine.ip == END {
                return Some(machine);
            }
            let copied = (CACHE..PAGE).contains(&machine.ip);
            let throw = self.thrown > 0 && number % (3 + usize::from(self.thrown)) == 0;
            if copied && throw {
                self.show_original(&mut machine);
            }
            let i = self.instruction(machine.ip)?;
            let allowed =
                |at: u64, width: u64| at.saturating_add(width) <= PAGE || at >= PAGE + 4096;
            match machine.execute(&i, &allowed) {
                Ok(()) => {}
                Err(Stop::Unknown) => panic!("the copy has {:?}", i.code()),
                Err(Stop::Fault(_)) => {
                    faults += 1;
                    if faults > MOST_FAULTS {
                        return None;
                    }
                    machine.ip = self.answer(&mut machine)?;
                }
            }
        }
        None
    }

    fn instruction(&self, ip: u64) -> Option<Instruction> {
        match self.block(ip) {
            Some((at, block)) => decode(&block.bytes, *at, ip),
            None => self.program.instruction(ip),
        }
    }

    fn block(&self, ip: u64) -> Option<&(u64, Block)> {
        let holds = |(at, block): &&(u64, Block)| ip.wrapping_sub(*at) < block.bytes.len() as u64;
        self.blocks.iter().find(holds)
    }

    /// Moves a thread in a copy to the original code.
    fn show_original(&self, machine: &mut Machine) {
        let ip = machine.ip;
        let Some((at, block)) = self.block(ip) else {
            return;
        };
        let here = block.resume.iter().find(|r| u64::from(r.offset) == ip - at);
        let here = here.expect("a thread is at an instruction");
        machine.ip = here.original.0;
        let [_, _, _, _, rsp, ..] = machine.general;
        let top = std::array::from_fn(|n| machine.byte(rsp.wrapping_add(n as u64), moved_fill));
        here.restore(&mut machine.general, u64::from_le_bytes(top));
    }

    /// The address at which the thread goes on.
    fn answer(&mut self, machine: &mut Machine) -> Option<u64> {
        let copied = self.block(machine.ip).is_some();
        self.show_original(machine);
        let ip = machine.ip;
        if let Some(known) = self.enter(machine, ip, copied) {
            return Some(known);
        }
        let registers = Registers {
            general: machine.general,
            ip: CodeAddress(ip),
        };
        let read = |at: Address, width: u64| {
            let on_page = at.0 < PAGE + 4096 && at.0 + width > PAGE;
            let bytes = (0..width).rev();
            let value = bytes.fold(0, |v, n| v << 8 | u64::from(machine.byte(at.0 + n, fill)));
            (at.0 < u64::MAX - 8 && !on_page).then_some(value)
        };
        let own = Frame {
            code: self.program.of(ip)?,
            ip: registers.ip,
        };
        let callers = self.callers(own, machine.general[4], &read);
        let callees: Vec<_> = (1..FUNCTIONS as u64)
            .filter_map(|n| self.program.of(TEXT + n * INNER))
            .collect();
        let request = Request {
            frame: own,
            callers: &callers,
            loops: None,
            callees: &callees,
            registers,
            downwards: false,
            whole: self.seen.len() % 4 == 3,
            compares_all: false,
            moved: &self.moved,
            seen: &self.seen,
            alone: &[],
            met: &self.met,
            memory: Memory(&read),
            near: CodeAddress(CACHE),
        };
        // As the tool does it. There are few calls and functions.
        let mut met = self.met.clone();
        met.extend(more_targets(&request));
        met.sort_unstable();
        met.dedup();
        let draft = Draft::of(&Request {
            met: &met,
            ..request
        });
        let block = draft.ok()?.block(CodeAddress(self.next)).ok()?;
        self.met = met;
        let at = self.next;
        for (n, byte) in block.bytes.iter().enumerate() {
            machine.memory.insert(at + n as u64, *byte);
        }
        self.next += (block.bytes.len() as u64).next_multiple_of(64);
        self.seen.push(block.seen);
        let entry = at + u64::from(block.entry);
        self.blocks.push((at, block));
        Some(entry)
    }

    /// The stack frames around `own`, as far as they are known: the tool looks at three.
    fn callers(
        &self,
        own: Frame<'a>,
        mut rsp: u64,
        read: &dyn Fn(Address, u64) -> Option<u64>,
    ) -> Vec<Frame<'a>> {
        let (mut callers, mut inner) = (Vec::new(), own);
        while inner.code.start.0 != TEXT && callers.len() < 3 {
            let slot = return_slot(inner.code, inner.ip, Memory(read));
            let Some(at) = slot.map(|slot| rsp.wrapping_add_signed(slot)) else {
                break;
            };
            let code = read(Address(at), 8).and_then(|back| Some((self.program.of(back)?, back)));
            let Some((code, back)) = code else { break };
            rsp = at.wrapping_add(8);
            inner = Frame {
                code,
                ip: CodeAddress(back),
            };
            callers.push(inner);
        }
        callers
    }

    /// The newest known entry that this thread may take.
    fn enter(&self, machine: &Machine, ip: u64, only_alone: bool) -> Option<u64> {
        let lets_in = |conditions: &[Condition]| {
            conditions.iter().all(|condition| match *condition {
                Condition::Register(r, low, high) => {
                    (low..=high).contains(&machine.general[usize::from(r.0)])
                }
                Condition::Steps(r, low, high, step) => {
                    let value = machine.general[usize::from(r.0)];
                    (low..=high).contains(&value) && (value - low).is_multiple_of(step)
                }
                Condition::Stack(offset, value) => {
                    let at = machine.general[4].wrapping_add_signed(offset);
                    let bytes = (0..8).rev();
                    let there = bytes.fold(0, |v, n| {
                        v << 8 | u64::from(machine.byte(at.wrapping_add(n), fill))
                    });
                    there == value
                }
            })
        };
        let mut second = None;
        for (at, block) in self.blocks.iter().rev() {
            for entry in &block.entries {
                if entry.original.0 == ip && lets_in(&entry.conditions) {
                    let to = at + u64::from(entry.offset);
                    match (block.is_loop, only_alone) {
                        (false, true) | (true, false) => return Some(to),
                        (false, false) => second = second.or(Some(to)),
                        (true, true) => {}
                    }
                }
            }
        }
        second
    }
}
