//! The loops and functions of an input, their addresses, and the machine at the start. Does not
//! know copies.

use crate::input::Input;
use crate::machine::{Flags, Machine, decode};
use iced_x86::{
    BlockEncoder, BlockEncoderOptions, Code, Instruction, InstructionBlock, MemoryOperand,
    Register as Iced,
};
use std::collections::HashMap;
use sunder_access::CodeAddress;

pub const TEXT: u64 = 0x40_0000;
/// Distance from the loop to the function that it may call, and on to the next ones: a function
/// that both may call, and the linker's stub for the first.
pub const INNER: u64 = 0x1000;
const OTHER: u64 = 2 * INNER;
const STUB: u64 = 3 * INNER;
pub const FUNCTIONS: usize = 4;
pub const CACHE: u64 = 0x50_0000;
pub const PAGE: u64 = 0x60_0000;
pub const GROUP: u64 = 0x40;
pub const GROUP_BYTES: u64 = 0x20;
pub const UNDERLAY: u64 = 0x70_0000;
pub const POOL: u64 = 0x70_1000;
const PRIVATE: u64 = 0x80_0000;
const STACK: u64 = 0x90_0000;
/// Offsets from the initial rbp: slots with the address of the first function and of the other, and
/// a table with that of the first.
const SLOTS: [i64; 2] = [-72, -80];
const TABLE: i64 = -128;
const IN_TABLE: i64 = 16;
const FRAME: u64 = PRIVATE + 0x200;
/// The loop's return address, at which the run ends.
pub const END: u64 = 0x1234_5678_9abc;

const MOST_INSTRUCTIONS: usize = 40;

/// All registers but rsp; those that begin as pointers to the group are twice as likely.
const GENERAL: [u8; 16] = [0, 1, 2, 3, 7, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 12];

/// The functions' code, in the order of their addresses.
pub struct Program(pub [Vec<u8>; FUNCTIONS]);

impl Program {
    /// The function at `ip`.
    pub fn of(&self, ip: u64) -> Option<sunder_rewrite::Code<'_>> {
        let number = ip.checked_sub(TEXT)? / INNER;
        let bytes = self.0.get(usize::try_from(number).ok()?)?;
        Some(sunder_rewrite::Code {
            start: CodeAddress(TEXT + number * INNER),
            bytes,
        })
    }

    /// The instruction at `ip`.
    pub fn instruction(&self, ip: u64) -> Option<Instruction> {
        let code = self.of(ip)?;
        decode(code.bytes, code.start.0, ip)
    }
}

pub fn list(program: &Program, start: u64) -> String {
    let (mut ip, mut text) = (start, String::new());
    while let Some(i) = program.instruction(ip) {
        text += &format!(
            "{ip:x} {:?} {:x?}\n",
            i.code(),
            program.of(ip).and_then(|f| f
                .bytes
                .get((ip - start) as usize..(i.next_ip() - start) as usize))
        );
        ip = i.next_ip();
    }
    text
}

pub fn machine(input: &mut Input<'_>, rounds: u8) -> Machine {
    let mut general = [0; 16];
    for register in &mut general {
        *register = input.number(2);
    }
    general[1] = rounds.into();
    general[4] = STACK;
    general[5] = FRAME;
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
        put(FRAME - 64 + 8 * slot, pointers[slot as usize % 4]);
    }
    for (at, function) in SLOTS.iter().zip([INNER, OTHER]) {
        put(FRAME.wrapping_add_signed(*at), TEXT + function);
    }
    put(FRAME.wrapping_add_signed(TABLE + IN_TABLE), TEXT + INNER);
    machine
}

/// The loop and the functions that it calls. `ends` says how the first function ends: by a return,
/// or by a jump to the other, directly or through its slot.
pub fn program([outer, inner, other]: [Input<'_>; 3], ends: u8) -> Option<Program> {
    let mut body = steps(outer, Caller::Loop)?;
    let count = Instruction::with2(Code::Sub_rm64_imm8, Iced::RCX, 1).ok()?;
    body.push((count, None));
    let again = Instruction::with_branch(Code::Jne_rel32_64, 0).ok()?;
    body.push((again, Some(0)));
    body.push((Instruction::with(Code::Retnq), None));
    let mut called = steps(inner, Caller::Called)?;
    let end = match ends % 4 {
        0 => Instruction::with_branch(Code::Jmp_rel32_64, TEXT + OTHER),
        1 => Instruction::with1(Code::Jmp_rm64, slot(1)),
        _ => Ok(Instruction::with(Code::Retnq)),
    };
    called.push((end.ok()?, None));
    let mut last = steps(other, Caller::Last)?;
    last.push((Instruction::with(Code::Retnq), None));
    let stub = Instruction::with1(Code::Jmp_rm64, slot(0)).ok()?;
    Some(Program([
        encode(TEXT, body)?,
        encode(TEXT + INNER, called)?,
        encode(TEXT + OTHER, last)?,
        encode(TEXT + STUB, vec![(stub, None)])?,
    ]))
}

/// As many instructions as the input has bytes for, without those of the end.
fn steps(mut input: Input<'_>, place: Caller) -> Option<Body> {
    let mut body = Vec::new();
    while !input.is_empty() && body.len() < MOST_INSTRUCTIONS {
        step(&mut input, &mut body, place)?;
    }
    Some(body)
}

/// One of the slots, addressed as linkers do.
fn slot(number: usize) -> MemoryOperand {
    let at = FRAME.wrapping_add_signed(SLOTS[number]);
    MemoryOperand::with_base_displ(Iced::RIP, at as i64)
}

/// Encodes instructions; a branch has the index of its target.
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

/// The function that a step belongs to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Caller {
    Loop,
    Called,
    /// The last function, which calls none.
    Last,
}

/// A call through a pointer, or an instruction that changes where pointers lead.
fn indirect(kind: u8, [a, b]: [u8; 2], place: Caller, body: &mut Body) -> Option<()> {
    let number = usize::from(place == Caller::Called);
    let register = Iced::RAX + u32::from(GENERAL[usize::from(a & 15)]);
    let near = |at: i64| MemoryOperand::with_base_displ(Iced::RBP, at);
    let made = match kind {
        0 => vec![Instruction::with1(Code::Call_rm64, slot(number))],
        1 => vec![Instruction::with_branch(Code::Call_rel32_64, TEXT + STUB)],
        2 => vec![
            Instruction::with2(
                Code::Mov_r64_rm64,
                register,
                near(SLOTS[usize::from(b & 1)]),
            ),
            Instruction::with1(Code::Call_rm64, register),
        ],
        3 => vec![
            Instruction::with2(Code::Lea_r64_m, register, near(TABLE)),
            Instruction::with1(
                Code::Call_rm64,
                MemoryOperand::with_base_displ(register, IN_TABLE),
            ),
        ],
        // Exchanges two slots, or copies one to the other.
        4 => {
            let mut all = vec![Instruction::with2(
                Code::Mov_r64_rm64,
                register,
                near(SLOTS[0]),
            )];
            if b & 1 == 0 {
                all.push(Instruction::with2(
                    Code::Xchg_rm64_r64,
                    near(SLOTS[1]),
                    register,
                ));
                all.push(Instruction::with2(
                    Code::Mov_rm64_r64,
                    near(SLOTS[0]),
                    register,
                ));
            } else {
                all.push(Instruction::with2(
                    Code::Mov_rm64_r64,
                    near(SLOTS[1]),
                    register,
                ));
            }
            all
        }
        // A system call without pointers; the registers that it changes are not read after it.
        _ => vec![
            Instruction::with2(Code::Mov_r64_rm64, Iced::R13, Iced::RCX),
            Instruction::with2(Code::Mov_r32_imm32, Iced::EAX, 39),
            Ok(Instruction::with(Code::Syscall)),
            Instruction::with2(Code::Mov_r64_rm64, Iced::RCX, Iced::R13),
            Instruction::with2(Code::Xor_rm32_r32, Iced::R11D, Iced::R11D),
        ],
    };
    for one in made {
        body.push((one.ok()?, None));
    }
    Some(())
}

/// Adds an instruction, or a few that belong together.
fn step(input: &mut Input<'_>, body: &mut Body, place: Caller) -> Option<()> {
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
    let made = match kind % 48 {
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
        25 if place == Caller::Loop => Instruction::with_branch(Code::Call_rel32_64, TEXT + INNER),
        25 if place == Caller::Called => {
            Instruction::with_branch(Code::Call_rel32_64, TEXT + OTHER)
        }
        kind @ 40..46 if place != Caller::Last => {
            return indirect(kind - 40, [a, b], place, body);
        }
        46 if place != Caller::Last => Instruction::with1(Code::Call_rm64, memory()),
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
