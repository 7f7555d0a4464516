//! An interpreter of a few dozen instructions, in safe code. The rewriter's entry executes original
//! code and copies with it. Flags that the processor leaves undefined may have any value, because
//! both run here.

use iced_x86::{Decoder, DecoderOptions, Instruction, Mnemonic, OpKind, Register};
use std::collections::HashMap;

/// Registers and memory.
#[derive(Clone)]
pub struct Machine {
    /// The general registers, by encoding number.
    pub general: [u64; 16],
    /// The address of the next instruction.
    pub ip: u64,
    /// Written bytes; all others are a function of their address.
    pub memory: HashMap<u64, u8>,
    pub flags: Flags,
}

/// The flags that conditions depend on.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Flags {
    pub carry: bool,
    pub zero: bool,
    pub sign: bool,
    pub overflow: bool,
    pub parity: bool,
}

/// Why an instruction was not executed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stop {
    /// Memory at this address may not be accessed.
    Fault(u64),
    /// The interpreter does not have the instruction.
    Unknown,
}

type Done<T> = Result<T, Stop>;

impl Machine {
    /// Executes `i`, whose address is `ip`. `allowed` says whether so many bytes at an address may
    /// be accessed; if not, nothing changes.
    pub fn execute(&mut self, i: &Instruction, allowed: &dyn Fn(u64, u64) -> bool) -> Done<()> {
        let before = (self.general, self.flags);
        let mut step = Step {
            machine: self,
            i,
            allowed,
        };
        match step.execute() {
            Ok(to) => {
                self.ip = to.unwrap_or(i.next_ip());
                Ok(())
            }
            Err(stop) => {
                (self.general, self.flags) = before;
                Err(stop)
            }
        }
    }

    /// A byte of memory.
    pub fn byte(&self, at: u64, fill: impl Fn(u64) -> u8) -> u8 {
        self.memory.get(&at).copied().unwrap_or_else(|| fill(at))
    }
}

/// The instruction at `ip` in `code`, whose first byte is at `start`.
pub fn decode(code: &[u8], start: u64, ip: u64) -> Option<Instruction> {
    let at = usize::try_from(ip.checked_sub(start)?).ok()?;
    let mut decoder = Decoder::with_ip(64, code.get(at..)?, ip, DecoderOptions::NONE);
    let i = decoder.decode();
    (!i.is_invalid()).then_some(i)
}

/// The content of memory that has not been written.
pub fn fill(at: u64) -> u8 {
    (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8 & 0x3f
}

/// The execution of one instruction.
struct Step<'a> {
    machine: &'a mut Machine,
    i: &'a Instruction,
    allowed: &'a dyn Fn(u64, u64) -> bool,
}

const fn mask(width: u64) -> u64 {
    if width >= 8 {
        u64::MAX
    } else {
        (1 << (8 * width)) - 1
    }
}

const fn sign(value: u64, width: u64) -> bool {
    value >> (8 * width - 1) & 1 != 0
}

impl Step<'_> {
    /// The target of a jump; `None` for the next instruction.
    fn execute(&mut self) -> Done<Option<u64>> {
        let i = self.i;
        let m = i.mnemonic();
        match m {
            Mnemonic::Nop => {}
            Mnemonic::Jmp => {
                return Ok(Some(if i.is_jmp_near_indirect() {
                    self.read(0)?
                } else {
                    i.near_branch_target()
                }));
            }
            Mnemonic::Call => {
                let to = if i.is_call_near_indirect() {
                    self.read(0)?
                } else {
                    i.near_branch_target()
                };
                self.push(i.next_ip())?;
                return Ok(Some(to));
            }
            // A call whose result is always the same.
            Mnemonic::Syscall => {
                let general = &mut self.machine.general;
                (general[0], general[1], general[11]) = (0x1267, i.next_ip(), 0);
            }
            Mnemonic::Ret if i.op_count() == 0 => return Ok(Some(self.pop()?)),
            Mnemonic::Push => {
                let value = self.read(0)?;
                self.push(value)?;
            }
            Mnemonic::Pop if i.op0_kind() == OpKind::Register => {
                let value = self.pop()?;
                self.write(0, value)?;
            }
            _ if i.is_jcc_short_or_near() => {
                return Ok(self.holds().then(|| i.near_branch_target()));
            }
            Mnemonic::Lea => {
                let at = self.address();
                self.write(0, at)?;
            }
            Mnemonic::Mov | Mnemonic::Movzx => {
                let value = self.read(1)?;
                self.write(0, value)?;
            }
            Mnemonic::Movsx | Mnemonic::Movsxd => {
                let value = self.read(1)?;
                let away = 64 - 8 * self.width(1) as u32;
                self.write(0, ((value << away) as i64 >> away) as u64)?;
            }
            Mnemonic::Xchg => {
                let (a, b) = (self.read(0)?, self.read(1)?);
                self.write(0, b)?;
                self.write(1, a)?;
            }
            Mnemonic::Xadd => {
                let (a, b) = (self.read(0)?, self.read(1)?);
                let sum = self.add(a, b, 0);
                // Memory comes first, because it may fault.
                self.write(0, sum)?;
                self.write(1, a)?;
                if i.op0_kind() == OpKind::Register {
                    self.write(0, sum)?;
                }
            }
            Mnemonic::Mul => {
                let (a, b) = (self.read(0)?, self.machine.general[0]);
                let all = u128::from(a) * u128::from(b);
                (self.machine.general[0], self.machine.general[2]) =
                    (all as u64, (all >> 64) as u64);
                // Undefined flags must change: a copy may have used them.
                self.result(all as u64, 8);
                self.machine.flags.carry = all >> 64 != 0;
                self.machine.flags.overflow = all >> 64 != 0;
            }
            Mnemonic::Imul => {
                let (a, b) = match i.op_count() {
                    2 => (self.read(0)?, self.read(1)?),
                    3 => (self.read(1)?, self.read(2)?),
                    _ => return Err(Stop::Unknown),
                };
                let product = a.wrapping_mul(b);
                self.logic(product, 8);
                self.write(0, product)?;
            }
            _ if is_conditional_move(m) => {
                let (old, new) = (self.read(0)?, self.read(1)?);
                let value = if self.holds() { new } else { old };
                self.write(0, value)?;
            }
            _ if is_set(m) => {
                let value = u64::from(self.holds());
                self.write(0, value)?;
            }
            _ => self.arithmetic(m)?,
        }
        Ok(None)
    }

    fn arithmetic(&mut self, m: Mnemonic) -> Done<()> {
        let width = self.width(0);
        let a = self.read(0)?;
        let b = if self.i.op_count() > 1 {
            self.read(1)?
        } else {
            0
        };
        let carry = self.machine.flags.carry;
        let value = match m {
            Mnemonic::Add => self.add(a, b, 0),
            Mnemonic::Adc => self.add(a, b, carry.into()),
            Mnemonic::Sub | Mnemonic::Cmp => self.subtract(a, b),
            Mnemonic::Neg => self.subtract(0, a),
            Mnemonic::Inc | Mnemonic::Dec => {
                let value = match m {
                    Mnemonic::Inc => self.add(a, 1, 0),
                    _ => self.subtract(a, 1),
                };
                self.machine.flags.carry = carry;
                value
            }
            Mnemonic::Not => !a,
            Mnemonic::And | Mnemonic::Test => self.logic(a & b, width),
            Mnemonic::Or => self.logic(a | b, width),
            Mnemonic::Xor => self.logic(a ^ b, width),
            Mnemonic::Shl | Mnemonic::Shr | Mnemonic::Sar => {
                let by = (b & if width == 8 { 63 } else { 31 }) as u32;
                let away = 64 - 8 * width as u32;
                let value = match m {
                    Mnemonic::Shl => a << by,
                    Mnemonic::Shr => a >> by,
                    _ => ((a << away) as i64 >> away >> by) as u64,
                };
                if by > 0 {
                    self.logic(value & mask(width), width);
                }
                value
            }
            _ => return Err(Stop::Unknown),
        };
        if matches!(m, Mnemonic::Cmp | Mnemonic::Test) {
            return Ok(());
        }
        self.write(0, value)
    }

    fn result(&mut self, value: u64, width: u64) {
        let flags = &mut self.machine.flags;
        flags.zero = value & mask(width) == 0;
        flags.sign = sign(value, width);
        flags.parity = (value as u8).count_ones().is_multiple_of(2);
    }

    fn logic(&mut self, value: u64, width: u64) -> u64 {
        self.result(value, width);
        self.machine.flags.carry = false;
        self.machine.flags.overflow = false;
        value
    }

    fn add(&mut self, a: u64, b: u64, carry: u64) -> u64 {
        let width = self.width(0);
        let all = u128::from(a & mask(width)) + u128::from(b & mask(width)) + u128::from(carry);
        let value = all as u64 & mask(width);
        self.result(value, width);
        self.machine.flags.carry = all >> (8 * width) != 0;
        let signs = (sign(a, width), sign(b, width), sign(value, width));
        self.machine.flags.overflow = signs.0 == signs.1 && signs.0 != signs.2;
        value
    }

    fn subtract(&mut self, a: u64, b: u64) -> u64 {
        let width = self.width(0);
        let (a, b) = (a & mask(width), b & mask(width));
        let value = a.wrapping_sub(b) & mask(width);
        self.result(value, width);
        self.machine.flags.carry = a < b;
        let signs = (sign(a, width), sign(b, width), sign(value, width));
        self.machine.flags.overflow = signs.0 != signs.1 && signs.0 != signs.2;
        value
    }

    /// Whether the instruction's condition holds.
    fn holds(&self) -> bool {
        use iced_x86::ConditionCode as C;
        let f = self.machine.flags;
        match self.i.condition_code() {
            C::o => f.overflow,
            C::no => !f.overflow,
            C::b => f.carry,
            C::ae => !f.carry,
            C::e => f.zero,
            C::ne => !f.zero,
            C::be => f.carry || f.zero,
            C::a => !f.carry && !f.zero,
            C::s => f.sign,
            C::ns => !f.sign,
            C::p => f.parity,
            C::np => !f.parity,
            C::l => f.sign != f.overflow,
            C::ge => f.sign == f.overflow,
            C::le => f.zero || f.sign != f.overflow,
            C::g => !f.zero && f.sign == f.overflow,
            _ => true,
        }
    }

    fn width(&self, number: u32) -> u64 {
        match self.i.op_kind(number) {
            OpKind::Register => self.i.op_register(number).size() as u64,
            OpKind::Memory => (self.i.memory_size().size() as u64).max(1),
            _ => 8,
        }
    }

    fn address(&self) -> u64 {
        let i = self.i;
        let get = |register: Register| match register {
            Register::None | Register::RIP => 0,
            other => self.machine.general[other.full_register().number() & 15],
        };
        get(i.memory_base())
            .wrapping_add(get(i.memory_index()).wrapping_mul(i.memory_index_scale().into()))
            .wrapping_add(i.memory_displacement64())
    }

    fn read(&self, number: u32) -> Done<u64> {
        let width = self.width(number);
        match self.i.op_kind(number) {
            OpKind::Register => {
                let register = self.i.op_register(number);
                let value = self.machine.general[register.full_register().number() & 15];
                Ok(value & mask(width))
            }
            OpKind::Memory => self.load(self.address(), width),
            _ => self.i.try_immediate(number).map_err(|_| Stop::Unknown),
        }
    }

    fn write(&mut self, number: u32, value: u64) -> Done<()> {
        let width = self.width(number);
        match self.i.op_kind(number) {
            OpKind::Register => {
                let register = self.i.op_register(number);
                let to = &mut self.machine.general[register.full_register().number() & 15];
                // A write of 32 bits clears the upper ones, a smaller one keeps them.
                let kept = if width < 4 { *to & !mask(width) } else { 0 };
                *to = kept | value & mask(width);
                Ok(())
            }
            OpKind::Memory => self.store(self.address(), value, width),
            _ => Err(Stop::Unknown),
        }
    }

    fn load(&self, at: u64, width: u64) -> Done<u64> {
        if !(self.allowed)(at, width) {
            return Err(Stop::Fault(at));
        }
        let bytes = (0..width).rev();
        Ok(bytes.fold(0, |value, n| {
            value << 8 | u64::from(self.machine.byte(at.wrapping_add(n), fill))
        }))
    }

    fn store(&mut self, at: u64, value: u64, width: u64) -> Done<()> {
        if !(self.allowed)(at, width) {
            return Err(Stop::Fault(at));
        }
        for n in 0..width {
            let byte = (value >> (8 * n)) as u8;
            self.machine.memory.insert(at.wrapping_add(n), byte);
        }
        Ok(())
    }

    fn push(&mut self, value: u64) -> Done<()> {
        let rsp = self.machine.general[4].wrapping_sub(8);
        self.store(rsp, value, 8)?;
        self.machine.general[4] = rsp;
        Ok(())
    }

    fn pop(&mut self) -> Done<u64> {
        let rsp = self.machine.general[4];
        let value = self.load(rsp, 8)?;
        self.machine.general[4] = rsp.wrapping_add(8);
        Ok(value)
    }
}

fn is_conditional_move(m: Mnemonic) -> bool {
    matches!(
        m,
        Mnemonic::Cmova
            | Mnemonic::Cmovae
            | Mnemonic::Cmovb
            | Mnemonic::Cmovbe
            | Mnemonic::Cmove
            | Mnemonic::Cmovne
            | Mnemonic::Cmovg
            | Mnemonic::Cmovge
            | Mnemonic::Cmovl
            | Mnemonic::Cmovle
    )
}

fn is_set(m: Mnemonic) -> bool {
    matches!(
        m,
        Mnemonic::Seta
            | Mnemonic::Setae
            | Mnemonic::Setb
            | Mnemonic::Setbe
            | Mnemonic::Sete
            | Mnemonic::Setne
            | Mnemonic::Setg
            | Mnemonic::Setge
            | Mnemonic::Setl
            | Mnemonic::Setle
    )
}
