//! Random x86-64 programs, encoded by hand and executed by an interpreter, so that all their
//! accesses are known without the decoder under test.

mod flags;

use flags::Flags;
use sunder_access::Kind;

/// xorshift64*: the same programs in every run.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, limit: u64) -> u64 {
        (self.next() >> 16) % limit
    }

    fn flip(&mut self) -> bool {
        self.below(2) == 0
    }
}

/// A memory operand; the displacement is always encoded in 32 bits.
#[derive(Clone, Copy, Debug)]
struct Memory {
    base: u8,
    index: Option<(u8, u8)>,
    displacement: i32,
}

#[derive(Clone, Copy, Debug)]
enum Operation {
    /// `mov to, from` in 64 or 32 bits.
    Copy {
        to: u8,
        from: u8,
        wide: bool,
    },
    Constant {
        to: u8,
        value: i32,
    },
    AddConstant {
        to: u8,
        value: i32,
        wide: bool,
    },
    AndConstant {
        to: u8,
        value: i32,
        wide: bool,
    },
    Increment {
        to: u8,
        wide: bool,
    },
    Add {
        to: u8,
        from: u8,
        wide: bool,
    },
    Subtract {
        to: u8,
        from: u8,
        wide: bool,
    },
    Clear {
        register: u8,
    },
    Shift {
        to: u8,
        count: u8,
        wide: bool,
    },
    Multiply {
        to: u8,
        from: u8,
        value: i32,
        wide: bool,
    },
    ZeroExtend {
        to: u8,
        from: u8,
    },
    SignExtend {
        to: u8,
        from: u8,
    },
    Exchange {
        a: u8,
        b: u8,
    },
    Lea {
        to: u8,
        memory: Memory,
        wide: bool,
    },
    Load {
        to: u8,
        memory: Memory,
        wide: bool,
    },
    LoadByte {
        to: u8,
        memory: Memory,
    },
    Store {
        from: u8,
        memory: Memory,
    },
    /// `add [m], r`, perhaps locked.
    Update {
        from: u8,
        memory: Memory,
        locked: bool,
    },
    /// `cmpxchg [m], r`: changes rax.
    CompareExchange {
        from: u8,
        memory: Memory,
    },
    Push {
        from: u8,
    },
    Pop {
        to: u8,
    },
    Leave,
    /// `cmp a, b`.
    Compare {
        a: u8,
        b: u8,
        wide: bool,
    },
    CompareConstant {
        a: u8,
        value: i32,
        wide: bool,
    },
    /// `cmp`, of the low byte.
    CompareByte {
        a: u8,
        value: u8,
    },
    /// `test a, b`.
    Test {
        a: u8,
        b: u8,
        wide: bool,
    },
    /// `test`, of the low byte.
    TestByte {
        a: u8,
        value: u8,
    },
    /// A conditional jump, with the condition as in its encoding, to the operation of this number.
    Branch {
        to: usize,
        condition: u8,
    },
}

/// One executed instruction: the registers before it, and its accesses.
#[derive(Debug)]
pub struct Point {
    pub address: u64,
    pub registers: [u64; 16],
    pub touched: Option<(u64, u8, Kind)>,
    /// How many stores were executed before it.
    stores: usize,
}

/// An execution, with the contents of memory at each point of it.
pub struct Trace {
    pub points: Vec<Point>,
    memory: Memory8,
}

impl Trace {
    /// The 8 bytes at `address` just before the point of this number.
    pub fn content(&self, point: usize, address: u64) -> u64 {
        self.memory.read(self.points[point].stores, address)
    }
}

/// Memory that holds random values until it is stored to; all stores are of 8 bytes.
#[derive(Default)]
struct Memory8 {
    seed: u64,
    stores: Vec<(u64, u64)>,
}

impl Memory8 {
    fn byte(&self, stores: usize, address: u64) -> u8 {
        for &(to, value) in self.stores[..stores].iter().rev() {
            let offset = address.wrapping_sub(to);
            if offset < 8 {
                return (value >> (8 * offset)) as u8;
            }
        }
        let mixed = (address ^ self.seed).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed ^ mixed >> 29) as u8
    }

    /// The 8 bytes at an address after so many stores.
    fn read(&self, stores: usize, address: u64) -> u64 {
        (0..8).rev().fold(0, |value, offset| {
            value << 8 | u64::from(self.byte(stores, address.wrapping_add(offset)))
        })
    }

    fn load(&self, address: u64) -> u64 {
        self.read(self.stores.len(), address)
    }

    fn store(&mut self, address: u64, value: u64) {
        self.stores.push((address, value));
    }
}

pub struct Program {
    pub bytes: Vec<u8>,
    operations: Vec<Operation>,
    addresses: Vec<u64>,
}

const RSP: usize = 4;
const RBP: usize = 5;

impl Program {
    /// 8 to 40 operations that begin at `start`.
    pub fn random(random: &mut Random, start: u64) -> Self {
        let count = 8 + random.below(33) as usize;
        let operations: Vec<_> = (0..count).map(|_| operation(random, count)).collect();
        let (mut bytes, mut offsets, mut branches) = (Vec::new(), Vec::new(), Vec::new());
        for operation in &operations {
            offsets.push(bytes.len());
            encode(*operation, &mut bytes);
            if let Operation::Branch { to, .. } = operation {
                branches.push((bytes.len(), *to));
            }
        }
        for (end, to) in branches {
            let distance = offsets[to] as i32 - end as i32;
            bytes[end - 4..end].copy_from_slice(&distance.to_le_bytes());
        }
        Self {
            bytes,
            operations,
            addresses: offsets
                .iter()
                .map(|offset| start + *offset as u64)
                .collect(),
        }
    }

    /// Executes at most `most` instructions from the first on. Memory holds
    /// random values; branches whose flags are not known are taken at random.
    pub fn execute(&self, random: &mut Random, most: usize) -> Trace {
        let mut registers: [u64; 16] = std::array::from_fn(|_| random.next());
        let mut memory = Memory8 {
            seed: random.next(),
            stores: Vec::new(),
        };
        let mut trace = Vec::new();
        let mut next = 0;
        let mut flags = Flags::default();
        while next < self.operations.len() && trace.len() < most {
            let operation = self.operations[next];
            let before = registers;
            let stores = memory.stores.len();
            let touched = execute(operation, &mut registers, &mut memory, random);
            trace.push(Point {
                address: self.addresses[next],
                registers: before,
                touched,
                stores,
            });
            let taken = |condition, random: &mut Random| {
                flags.take(condition).unwrap_or_else(|| random.flip())
            };
            next = match operation {
                Operation::Branch { to, condition } if taken(condition, random) => to,
                _ => next + 1,
            };
            flags = flags_after(operation, &before, &registers, flags);
        }
        Trace {
            points: trace,
            memory,
        }
    }
}

fn operation(random: &mut Random, count: usize) -> Operation {
    use Operation as O;
    // Few registers, so that one instruction often changes what another uses.
    let mut register = || [0, 1, 3, 4, 5, 7, 12, 13][random.below(8) as usize];
    let (to, from, base, index) = (register(), register(), register(), register());
    let value = random.next() as i32 >> random.below(24);
    let wide = random.below(3) > 0;
    let memory = Memory {
        base,
        index: (index != 4 && random.flip()).then(|| (index, random.below(4) as u8)),
        displacement: random.next() as i32 >> random.below(28),
    };
    if random.below(6) == 0 {
        // Like unoptimised code, with pointers in a few slots of the frame.
        let memory = Memory {
            base: if random.flip() { RBP } else { RSP } as u8,
            index: None,
            displacement: [-16, -12, -8, -8, 0, 8][random.below(6) as usize],
        };
        return match random.below(4) {
            0 => O::Store { from, memory },
            _ => O::Load {
                to,
                memory,
                wide: true,
            },
        };
    }
    match random.below(34) {
        0 | 1 => O::Copy { to, from, wide },
        2 => O::Constant { to, value },
        3 | 4 => O::AddConstant { to, value, wide },
        5 => O::AndConstant { to, value, wide },
        6 => O::Increment { to, wide },
        7 => O::Add { to, from, wide },
        8 => O::Subtract { to, from, wide },
        9 => O::Clear { register: to },
        10 => O::Shift {
            to,
            count: random.below(32) as u8,
            wide,
        },
        11 => O::Multiply {
            to,
            from,
            value,
            wide,
        },
        12 => O::ZeroExtend { to, from },
        13 => O::SignExtend { to, from },
        14 => O::Exchange { a: to, b: from },
        15 | 16 => O::Lea { to, memory, wide },
        17 => O::Load { to, memory, wide },
        18 => O::LoadByte { to, memory },
        19 | 20 => O::Store { from, memory },
        21 => O::Update {
            from,
            memory,
            locked: random.flip(),
        },
        22 => O::CompareExchange { from, memory },
        23 => O::Push { from },
        24 => match random.below(4) {
            0 => O::Leave,
            _ => O::Pop { to },
        },
        25 => O::Compare {
            a: to,
            b: from,
            wide,
        },
        26 => O::CompareConstant { a: to, value, wide },
        27 => O::CompareByte {
            a: to,
            value: value as u8,
        },
        28 => O::Test {
            a: to,
            b: from,
            wide,
        },
        29 | 30 => O::TestByte {
            a: to,
            value: [1, 3, 7, 0x80][random.below(4) as usize],
        },
        _ => O::Branch {
            to: random.below(count as u64) as usize,
            condition: random.below(16) as u8,
        },
    }
}

/// The flags after an operation, from the registers before and after it.
fn flags_after(operation: Operation, before: &[u64; 16], after: &[u64; 16], flags: Flags) -> Flags {
    use Operation as O;
    let bits = |wide: bool| if wide { 64 } else { 32 };
    let old = |register: u8| before[usize::from(register)];
    let new = |register: u8| after[usize::from(register)];
    match operation {
        O::AddConstant { to, wide, .. }
        | O::AndConstant { to, wide, .. }
        | O::Increment { to, wide }
        | O::Add { to, wide, .. }
        | O::Subtract { to, wide, .. } => Flags::of_result(new(to), bits(wide)),
        O::Clear { .. } => Flags::of_result(0, 32),
        O::Compare { a, b, wide } => Flags::of_comparison(old(a), old(b), bits(wide)),
        O::CompareConstant { a, value, wide } => {
            Flags::of_comparison(old(a), i64::from(value) as u64, bits(wide))
        }
        O::CompareByte { a, value } => Flags::of_comparison(old(a), value.into(), 8),
        O::Test { a, b, wide } => Flags::of_test(old(a), old(b), bits(wide)),
        O::TestByte { a, value } => Flags::of_test(old(a), value.into(), 8),
        // A shift by nothing leaves them.
        O::Shift { count: 0, .. } => flags,
        O::Shift { .. } | O::Multiply { .. } | O::Update { .. } | O::CompareExchange { .. } => {
            Flags::default()
        }
        O::Copy { .. }
        | O::Constant { .. }
        | O::ZeroExtend { .. }
        | O::SignExtend { .. }
        | O::Exchange { .. }
        | O::Lea { .. }
        | O::Load { .. }
        | O::LoadByte { .. }
        | O::Store { .. }
        | O::Push { .. }
        | O::Pop { .. }
        | O::Leave
        | O::Branch { .. } => flags,
    }
}

/// REX prefix, opcode and a register operand.
fn registers(out: &mut Vec<u8>, wide: bool, opcode: &[u8], reg: u8, rm: u8) {
    out.push(0x40 | u8::from(wide) << 3 | (reg >> 3) << 2 | rm >> 3);
    out.extend(opcode);
    out.push(0xc0 | (reg & 7) << 3 | rm & 7);
}

/// REX prefix, opcode and a memory operand with SIB byte and displacement.
fn memory(out: &mut Vec<u8>, wide: bool, opcode: &[u8], reg: u8, memory: Memory) {
    let (index, scale) = memory.index.unwrap_or((4, 0));
    let high = (reg >> 3) << 2 | (index >> 3) << 1 | memory.base >> 3;
    out.push(0x40 | u8::from(wide) << 3 | high);
    out.extend(opcode);
    out.push(0x84 | (reg & 7) << 3);
    out.push(scale << 6 | (index & 7) << 3 | memory.base & 7);
    out.extend(memory.displacement.to_le_bytes());
}

fn encode(operation: Operation, out: &mut Vec<u8>) {
    use Operation as O;
    match operation {
        O::Copy { to, from, wide } => registers(out, wide, &[0x89], from, to),
        O::Constant { to, value } => {
            registers(out, true, &[0xc7], 0, to);
            out.extend(value.to_le_bytes());
        }
        O::AddConstant { to, value, wide } => {
            registers(out, wide, &[0x81], 0, to);
            out.extend(value.to_le_bytes());
        }
        O::AndConstant { to, value, wide } => {
            registers(out, wide, &[0x81], 4, to);
            out.extend(value.to_le_bytes());
        }
        O::Increment { to, wide } => registers(out, wide, &[0xff], 0, to),
        O::Add { to, from, wide } => registers(out, wide, &[0x01], from, to),
        O::Subtract { to, from, wide } => registers(out, wide, &[0x29], from, to),
        O::Clear { register } => registers(out, false, &[0x31], register, register),
        O::Shift { to, count, wide } => {
            registers(out, wide, &[0xc1], 4, to);
            out.push(count);
        }
        O::Multiply {
            to,
            from,
            value,
            wide,
        } => {
            registers(out, wide, &[0x69], to, from);
            out.extend(value.to_le_bytes());
        }
        O::ZeroExtend { to, from } => registers(out, false, &[0x0f, 0xb6], to, from),
        O::SignExtend { to, from } => registers(out, true, &[0x63], to, from),
        O::Exchange { a, b } => registers(out, true, &[0x87], b, a),
        O::Lea {
            to,
            memory: m,
            wide,
        } => memory(out, wide, &[0x8d], to, m),
        O::Load {
            to,
            memory: m,
            wide,
        } => memory(out, wide, &[0x8b], to, m),
        O::LoadByte { to, memory: m } => memory(out, false, &[0x8a], to, m),
        O::Store { from, memory: m } => memory(out, true, &[0x89], from, m),
        O::Update {
            from,
            memory: m,
            locked,
        } => {
            out.extend(locked.then_some(0xf0));
            memory(out, true, &[0x01], from, m);
        }
        O::CompareExchange { from, memory: m } => memory(out, true, &[0x0f, 0xb1], from, m),
        O::Push { from } => out.extend([0x40 | from >> 3, 0x50 | from & 7]),
        O::Pop { to } => out.extend([0x40 | to >> 3, 0x58 | to & 7]),
        O::Leave => out.push(0xc9),
        O::Compare { a, b, wide } => registers(out, wide, &[0x39], b, a),
        O::CompareConstant { a, value, wide } => {
            registers(out, wide, &[0x81], 7, a);
            out.extend(value.to_le_bytes());
        }
        O::CompareByte { a, value } => {
            registers(out, false, &[0x80], 7, a);
            out.push(value);
        }
        O::Test { a, b, wide } => registers(out, wide, &[0x85], b, a),
        O::TestByte { a, value } => {
            registers(out, false, &[0xf6], 0, a);
            out.push(value);
        }
        O::Branch { condition, .. } => out.extend([0x0f, 0x80 | condition, 0, 0, 0, 0]),
    }
}

fn cut(value: u64, wide: bool) -> u64 {
    if wide { value } else { value & 0xffff_ffff }
}

/// Executes one operation and returns its data accesses, without those of the stack.
fn execute(
    operation: Operation,
    registers: &mut [u64; 16],
    data: &mut Memory8,
    random: &mut Random,
) -> Option<(u64, u8, Kind)> {
    use Operation as O;
    let r = |number: u8| usize::from(number);
    let at = |memory: Memory, registers: &[u64; 16]| {
        let index = memory
            .index
            .map_or(0, |(index, scale)| registers[r(index)] << scale);
        registers[r(memory.base)]
            .wrapping_add(index)
            .wrapping_add_signed(memory.displacement.into())
    };
    match operation {
        O::Copy { to, from, wide } => registers[r(to)] = cut(registers[r(from)], wide),
        O::Constant { to, value } => registers[r(to)] = i64::from(value) as u64,
        O::AddConstant { to, value, wide } => {
            registers[r(to)] = cut(registers[r(to)].wrapping_add_signed(value.into()), wide);
        }
        O::AndConstant { to, value, wide } => {
            registers[r(to)] = cut(registers[r(to)] & i64::from(value) as u64, wide);
        }
        O::Increment { to, wide } => {
            registers[r(to)] = cut(registers[r(to)].wrapping_add(1), wide);
        }
        O::Add { to, from, wide } => {
            registers[r(to)] = cut(registers[r(to)].wrapping_add(registers[r(from)]), wide);
        }
        O::Subtract { to, from, wide } => {
            registers[r(to)] = cut(registers[r(to)].wrapping_sub(registers[r(from)]), wide);
        }
        O::Clear { register } => registers[r(register)] = 0,
        O::Shift { to, count, wide } => registers[r(to)] = cut(registers[r(to)] << count, wide),
        O::Multiply {
            to,
            from,
            value,
            wide,
        } => {
            let product = registers[r(from)].wrapping_mul(i64::from(value) as u64);
            registers[r(to)] = cut(product, wide);
        }
        O::ZeroExtend { to, from } => registers[r(to)] = registers[r(from)] & 0xff,
        O::SignExtend { to, from } => {
            registers[r(to)] = i64::from(registers[r(from)] as i32) as u64;
        }
        O::Exchange { a, b } => registers.swap(r(a), r(b)),
        O::Lea { to, memory, wide } => registers[r(to)] = cut(at(memory, registers), wide),
        O::Load { to, memory, wide } => {
            let address = at(memory, registers);
            registers[r(to)] = cut(data.load(address), wide);
            return Some((address, if wide { 8 } else { 4 }, Kind::Read));
        }
        O::LoadByte { to, memory } => {
            let address = at(memory, registers);
            registers[r(to)] = registers[r(to)] & !0xff | data.load(address) & 0xff;
            return Some((address, 1, Kind::Read));
        }
        O::Store { memory, from } => {
            let address = at(memory, registers);
            data.store(address, registers[r(from)]);
            return Some((address, 8, Kind::Write));
        }
        O::Update {
            memory,
            locked,
            from,
        } => {
            let address = at(memory, registers);
            let sum = data.load(address).wrapping_add(registers[r(from)]);
            data.store(address, sum);
            let kind = if locked { Kind::Atomic } else { Kind::Update };
            return Some((address, 8, kind));
        }
        O::CompareExchange { memory, from } => {
            let address = at(memory, registers);
            let old = data.load(address);
            // The comparison succeeds by chance, as it does after many other instructions.
            if random.flip() {
                data.store(address, registers[r(from)]);
            } else {
                data.store(address, old);
                registers[0] = old;
            }
            return Some((address, 8, Kind::Update));
        }
        O::Push { from } => {
            let value = registers[r(from)];
            registers[RSP] = registers[RSP].wrapping_sub(8);
            data.store(registers[RSP], value);
        }
        O::Pop { to } => {
            let value = data.load(registers[RSP]);
            registers[RSP] = registers[RSP].wrapping_add(8);
            registers[r(to)] = value;
        }
        O::Leave => {
            let value = data.load(registers[RBP]);
            registers[RSP] = registers[RBP].wrapping_add(8);
            registers[RBP] = value;
        }
        O::Compare { .. }
        | O::CompareConstant { .. }
        | O::CompareByte { .. }
        | O::Test { .. }
        | O::TestByte { .. }
        | O::Branch { .. } => {}
    }
    None
}
