//! Copies of random loops, held to the original: a page's bytes have moved, each
//! access to it faults and is answered by the rewriter, and in the end registers,
//! flags and memory must be those of a run in which nothing had moved. Now and then
//! the thread is thrown back into the original code, as a signal does.

use crate::input::Input;
use crate::machine::{Flags, Machine, Stop, decode, fill};
use iced_x86::{
    BlockEncoder, BlockEncoderOptions, Code, FlowControl, Instruction, InstructionBlock,
    MemoryOperand, Register as Iced,
};
use std::collections::HashMap;
use sunder_access::{Address, CodeAddress, Span};
use sunder_rewrite::{
    Block, Condition, Frame, Memory, MovedPage, Registers, Request, Rule, Seen, return_slot,
    specialise,
};

const TEXT: u64 = 0x40_0000;
/// The function that the loop may call lies so far behind it.
const INNER: u64 = 0x1000;
const CACHE: u64 = 0x50_0000;
const PAGE: u64 = 0x60_0000;
const GROUP: u64 = 0x40;
const GROUP_BYTES: u64 = 0x20;
const UNDERLAY: u64 = 0x70_0000;
const POOL: u64 = 0x70_1000;
const PRIVATE: u64 = 0x80_0000;
const STACK: u64 = 0x90_0000;
/// The loop returns to here, and that is the end.
const END: u64 = 0x1234_5678_9abc;

const MOST_INSTRUCTIONS: usize = 40;
/// Instructions that are executed at most.
const MOST_STEPS: usize = 4000;
const MOST_FAULTS: usize = 200;

/// All but rsp, the ones that begin as pointers to the group twice as likely.
const GENERAL: [u8; 16] = [0, 1, 2, 3, 7, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 12];

struct Program {
    outer: Vec<u8>,
    inner: Vec<u8>,
}

impl Program {
    fn of(&self, ip: u64) -> sunder_rewrite::Code<'_> {
        let (start, bytes) = if ip < TEXT + INNER {
            (TEXT, &self.outer)
        } else {
            (TEXT + INNER, &self.inner)
        };
        sunder_rewrite::Code {
            start: CodeAddress(start),
            bytes,
        }
    }

    fn instruction(&self, ip: u64) -> Option<Instruction> {
        let code = self.of(ip);
        decode(code.bytes, code.start.0, ip)
    }
}

/// Makes a loop of the bytes, runs it as it is and with the page moved, and compares.
///
/// # Panics
/// If the results differ, or a copy breaks a promise.
pub fn rewrite(bytes: &[u8]) {
    let mut input = Input(bytes);
    let rounds = input.byte() % 8 + 1;
    let thrown = input.byte();
    let start = machine(&mut input, rounds);
    let inner_bytes = input.byte() % 64;
    let (mut inner, mut outer) = (Input(input.take(inner_bytes.into())), input);
    let Some(program) = program(&mut outer, &mut inner) else {
        return;
    };
    let Some(wanted) = run_as_it_is(&program, start.clone()) else {
        return;
    };
    if let Some(got) = (Moved::new(&program, thrown)).run(start) {
        let listing = || {
            let all = [TEXT, TEXT + INNER].map(|start| list(&program, start));
            all.join("--\n")
        };
        assert_eq!(got.general, wanted.general, "{}", listing());
        assert_eq!(got.flags, wanted.flags, "{}", listing());
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

fn list(program: &Program, start: u64) -> String {
    let (mut ip, mut text) = (start, String::new());
    while let Some(i) = program.instruction(ip) {
        text += &format!(
            "{ip:x} {:?} {:x?}\n",
            i.code(),
            program
                .of(ip)
                .bytes
                .get((ip - start) as usize..(i.next_ip() - start) as usize)
        );
        ip = i.next_ip();
    }
    text
}

/// Where a byte of the page is when the page has moved.
fn place(at: u64) -> u64 {
    match at.wrapping_sub(PAGE) {
        offset @ GROUP..0x60 => POOL + offset,
        offset if offset < 4096 => UNDERLAY + offset,
        _ => at,
    }
}

/// Where a byte was before.
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

/// Memory that only exists for the copies.
fn is_ours(at: u64) -> bool {
    (CACHE..PAGE).contains(&at) || (UNDERLAY..POOL + 0x1000).contains(&at)
}

fn machine(input: &mut Input<'_>, rounds: u8) -> Machine {
    let mut general = [0; 16];
    for register in &mut general {
        *register = input.number(2);
    }
    general[1] = rounds.into();
    general[4] = STACK;
    general[5] = PRIVATE + 0x200;
    general[6] = PRIVATE + 0x400;
    general[7] = PAGE + GROUP;
    general[12] = PAGE + GROUP;
    let mut machine = Machine {
        general,
        ip: TEXT,
        memory: HashMap::new(),
        flags: Flags::default(),
    };
    let mut put = |at: u64, value: u64| {
        for (n, byte) in value.to_le_bytes().into_iter().enumerate() {
            machine.memory.insert(at + n as u64, byte);
        }
    };
    put(STACK, END);
    for slot in 0..8 {
        let pointers = [
            PAGE + GROUP,
            PRIVATE + 0x600,
            u64::from(rounds),
            PAGE + 0x100,
        ];
        put(PRIVATE + 0x200 - 64 + 8 * slot, pointers[slot as usize % 4]);
    }
    machine
}

/// The loop and what it calls.
fn program(outer: &mut Input<'_>, inner: &mut Input<'_>) -> Option<Program> {
    let mut body = Vec::new();
    while !outer.is_empty() && body.len() < MOST_INSTRUCTIONS {
        step(outer, &mut body, true)?;
    }
    let count = Instruction::with2(Code::Sub_rm64_imm8, Iced::RCX, 1).ok()?;
    body.push((count, None));
    let again = Instruction::with_branch(Code::Jne_rel32_64, 0).ok()?;
    body.push((again, Some(0)));
    body.push((Instruction::with(Code::Retnq), None));
    let mut called = Vec::new();
    while !inner.is_empty() && called.len() < MOST_INSTRUCTIONS {
        step(inner, &mut called, false)?;
    }
    called.push((Instruction::with(Code::Retnq), None));
    Some(Program {
        outer: encode(TEXT, body)?,
        inner: encode(TEXT + INNER, called)?,
    })
}

/// Puts instructions together; branches have the number of their target.
fn encode(start: u64, body: Vec<(Instruction, Option<usize>)>) -> Option<Vec<u8>> {
    let last = body.len() - 1;
    let place = |number: usize| 1 << 40 | number.min(last) as u64;
    let all: Vec<Instruction> = body
        .into_iter()
        .enumerate()
        .map(|(number, (mut i, target))| {
            i.set_ip(place(number));
            if let Some(target) = target {
                i.set_near_branch64(place(target));
            }
            i
        })
        .collect();
    let block = InstructionBlock::new(&all, start);
    let made = BlockEncoder::encode(64, block, BlockEncoderOptions::NONE).ok()?;
    (made.code_buffer.len() < INNER as usize).then_some(made.code_buffer)
}

type Body = Vec<(Instruction, Option<usize>)>;

/// One more instruction.
fn step(input: &mut Input<'_>, body: &mut Body, may_call: bool) -> Option<()> {
    let kind = input.byte();
    let [a, b] = [input.byte(), input.byte()];
    let number = |n: u8| GENERAL[usize::from(n & 15)];
    let wide = |n: u8| Iced::RAX + u32::from(number(n));
    let half = |n: u8| Iced::EAX + u32::from(number(n));
    let small = |n: u8| Iced::AL + [0, 1, 2, 3, 4, 5, 6, 7][usize::from(n & 3)];
    let mut memory = || {
        let (shape, far) = (input.byte(), input.byte());
        let near = i64::from(far as i8 & !7);
        match shape >> 6 {
            0 => MemoryOperand::with_base_displ(wide(shape), i64::from(far & 0x18)),
            1 => MemoryOperand::with_base_displ(Iced::RBP, -8 * i64::from(far & 7) - 8),
            2 => MemoryOperand::with_base_displ(wide(shape), near),
            _ => MemoryOperand::with_base_index_scale_displ_size(
                wide(shape),
                wide(far),
                1 << (far >> 4 & 3),
                i64::from(far >> 6) * 8,
                1,
            ),
        }
    };
    let small_number = i32::from(b as i8);
    let target = || Some(usize::from(b) % (body.len() + 8));
    let made = match kind % 40 {
        0 | 1 => Instruction::with2(Code::Mov_r64_rm64, wide(a), memory()),
        2 => Instruction::with2(Code::Mov_rm64_r64, memory(), wide(a)),
        3 => Instruction::with2(Code::Add_rm64_r64, memory(), wide(a)),
        4 => Instruction::with2(Code::Add_r64_rm64, wide(a), memory()),
        5 => Instruction::with2(Code::Sub_rm32_r32, memory(), half(a)),
        6 => Instruction::with2(Code::Mov_r64_rm64, wide(a), wide(b)),
        7 => Instruction::with2(Code::Lea_r64_m, wide(a), memory()),
        8 => Instruction::with2(Code::Add_rm64_imm8, wide(a), small_number & !7),
        9 => Instruction::with2(Code::And_rm32_imm8, half(a), i32::from(b & 31)),
        10 => Instruction::with2(Code::Movzx_r32_rm8, half(a), memory()),
        11 => Instruction::with2(Code::Movzx_r32_rm8, half(a), small(b)),
        12 => Instruction::with2(Code::Shl_rm64_imm8, wide(a), i32::from(b & 7)),
        13 => Instruction::with2(Code::Shr_rm32_imm8, half(a), i32::from(b & 15)),
        14 => Instruction::with3(Code::Imul_r64_rm64_imm8, wide(a), wide(b), 8),
        15 => Instruction::with2(Code::Cmp_rm64_r64, wide(a), wide(b)),
        16 => Instruction::with2(Code::Cmp_rm32_imm8, half(a), small_number),
        17 | 18 => {
            let code = [
                Code::Je_rel32_64,
                Code::Jne_rel32_64,
                Code::Jb_rel32_64,
                Code::Ja_rel32_64,
                Code::Jl_rel32_64,
                Code::Jge_rel32_64,
                Code::Jbe_rel32_64,
                Code::Js_rel32_64,
            ][usize::from(a & 7)];
            body.push((Instruction::with_branch(code, 0).ok()?, target()));
            return Some(());
        }
        19 => Instruction::with2(Code::Cmovb_r64_rm64, wide(a), wide(b)),
        20 => Instruction::with2(Code::Cmove_r32_rm32, half(a), half(b)),
        21 => Instruction::with1(Code::Setb_rm8, small(a)),
        22 => Instruction::with2(Code::Xchg_rm64_r64, memory(), wide(a)),
        23 => Instruction::with2(Code::Xadd_rm64_r64, memory(), wide(a)).map(|mut i| {
            i.set_has_lock_prefix(true);
            i
        }),
        24 => {
            body.push((Instruction::with1(Code::Push_r64, wide(a)).ok()?, None));
            Instruction::with1(Code::Pop_r64, wide(b))
        }
        25 if may_call => Instruction::with_branch(Code::Call_rel32_64, TEXT + INNER),
        26 => Instruction::with2(Code::Test_rm64_r64, wide(a), wide(b)),
        27 => Instruction::with2(Code::Xor_rm32_r32, half(a), half(a)),
        28 => Instruction::with2(Code::Movsxd_r64_rm32, wide(a), memory()),
        29 => Instruction::with2(Code::Sub_rm64_r64, wide(a), wide(b)),
        30 => Instruction::with2(Code::Mov_r32_imm32, half(a), u32::from(b)),
        31 => Instruction::with2(Code::Adc_rm64_r64, wide(a), wide(b)),
        32 => Instruction::with1(Code::Inc_rm64, wide(a)),
        33 => Instruction::with1(Code::Neg_rm64, wide(a)),
        34 => Instruction::with1(Code::Mul_rm64, wide(a)),
        35 => Instruction::with2(Code::Or_rm32_r32, half(a), half(b)),
        36 => Instruction::with2(Code::Sar_rm64_imm8, wide(a), i32::from(b & 63)),
        37 => Instruction::with1(Code::Inc_rm32, memory()),
        38 => Instruction::with2(Code::Cmp_rm64_r64, memory(), wide(a)),
        _ => Instruction::with2(Code::Add_rm64_r64, wide(a), wide(b)),
    };
    body.push((made.ok()?, None));
    Some(())
}

/// The machine at the end; none if it does not come there, or if a function returns
/// elsewhere than to its call: flags are nothing that survives a return, and the copy
/// of one compares.
fn run_as_it_is(program: &Program, mut machine: Machine) -> Option<Machine> {
    let mut calls = vec![END];
    for _ in 0..MOST_STEPS {
        if machine.ip == END {
            return Some(machine);
        }
        let i = program.instruction(machine.ip)?;
        let allowed = |at: u64, width: u64| {
            let last = at.checked_add(width);
            last.is_some_and(|last| !is_ours(at) && !is_ours(last) && !(TEXT..CACHE).contains(&at))
        };
        machine.execute(&i, &allowed).ok()?;
        match i.flow_control() {
            FlowControl::Call => calls.push(i.next_ip()),
            FlowControl::Return if calls.pop() != Some(machine.ip) => return None,
            _ => {}
        }
    }
    None
}

/// The program with the page moved.
struct Moved<'a> {
    program: &'a Program,
    moved: MovedPage,
    blocks: Vec<(u64, Block)>,
    seen: Vec<Seen>,
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
            next: CACHE,
            thrown,
        }
    }

    /// The machine at the end; none if something could not be redirected, or if it
    /// takes too long.
    fn run(mut self, mut machine: Machine) -> Option<Machine> {
        for at in PAGE..PAGE + 4096 {
            machine.memory.insert(place(at), fill(at));
        }
        let mut faults = 0;
        // A copy executes more than what it stands for.
        for number in 0..8 * MOST_STEPS {
            if machine.ip == END {
                return Some(machine);
            }
            let copied = (CACHE..PAGE).contains(&machine.ip);
            let throw = self.thrown > 0 && number % (3 + usize::from(self.thrown)) == 0;
            if copied && throw {
                machine.ip = self.original(machine.ip);
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

    /// Where a thread in a copy is in the original.
    fn original(&self, ip: u64) -> u64 {
        let Some((at, block)) = self.block(ip) else {
            return ip;
        };
        let here = block.resume.iter().find(|r| u64::from(r.offset) == ip - at);
        here.expect("a thread is at an instruction").original.0
    }

    /// Where it goes on.
    fn answer(&mut self, machine: &mut Machine) -> Option<u64> {
        let copied = self.block(machine.ip).is_some();
        let ip = self.original(machine.ip);
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
        let own = self.program.of(ip);
        let mut callers = Vec::new();
        if own.start.0 != TEXT {
            let slot = return_slot(own, registers.ip, Memory(&read));
            let back =
                slot.and_then(|s| read(Address(machine.general[4].wrapping_add_signed(s)), 8));
            callers.extend(
                back.filter(|b| (TEXT..TEXT + INNER).contains(b))
                    .map(|back| Frame {
                        code: self.program.of(back),
                        ip: CodeAddress(back),
                    }),
            );
        }
        let request = Request {
            frame: Frame {
                code: own,
                ip: registers.ip,
            },
            callers: &callers,
            callees: &[self.program.of(TEXT + INNER)],
            registers,
            moved: &self.moved,
            seen: &self.seen,
            memory: Memory(&read),
            at: CodeAddress(self.next),
        };
        let block = specialise(&request).ok()?;
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

    /// A known way in that lets this thread in, the newest first.
    fn enter(&self, machine: &Machine, ip: u64, only_alone: bool) -> Option<u64> {
        let lets_in = |conditions: &[Condition]| {
            conditions.iter().all(|condition| match *condition {
                Condition::Register(r, low, high) => {
                    (low..=high).contains(&machine.general[usize::from(r.0)])
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
