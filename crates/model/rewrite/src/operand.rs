//! The one memory operand of an instruction that another displacement can move.

use crate::effects::State;
use crate::registers::Register;
use crate::values::Values;
use iced_x86::{
    FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register as Iced,
};

/// No plain operand is wider (AVX-512); what is saves processor state.
const WIDEST: u64 = 64;

/// See the module's head.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Operand {
    pub base: Option<Register>,
    pub index: Option<Register>,
    pub scale: u64,
    /// For an operand relative to rip, its address.
    pub displacement: u64,
    pub width: u64,
    pub relative: bool,
}

impl Operand {
    /// None if the instruction has no such operand, or accesses more than it.
    pub(crate) fn of(i: &Instruction, factory: &mut InstructionInfoFactory) -> Option<Self> {
        let explicit = (0..i.op_count()).filter(|&n| i.op_kind(n) == OpKind::Memory);
        if explicit.count() != 1
            || !(i.flow_control() == FlowControl::Next || i.is_jmp_near_indirect())
            || matches!(i.memory_segment(), Iced::FS | Iced::GS)
            || reaches_beyond(i)
        {
            return None;
        }
        let [memory] = factory.info(i).used_memory() else {
            return None;
        };
        if matches!(memory.access(), OpAccess::None | OpAccess::NoMemAccess) {
            return None;
        }
        let width = memory.memory_size().size() as u64;
        if width == 0 || width > WIDEST {
            return None;
        }
        let part = |register: Iced| match register {
            Iced::None => Some(None),
            other => Register::whole(other).map(Some),
        };
        let relative = i.memory_base() == Iced::RIP;
        Some(Self {
            base: if relative {
                None
            } else {
                part(i.memory_base())?
            },
            index: part(i.memory_index())?,
            scale: u64::from(i.memory_index_scale()),
            displacement: i.memory_displacement64(),
            width,
            relative,
        })
    }

    /// Its address, with these values of its registers.
    pub(crate) const fn address(&self, base: u64, index: u64) -> u64 {
        base.wrapping_add(index.wrapping_mul(self.scale))
            .wrapping_add(self.displacement)
    }

    /// The registers' values, as far as they are single ones; 0 for none.
    pub(crate) fn single(&self, state: &State) -> (Option<u64>, Option<u64>) {
        let get =
            |register: Option<Register>| register.map_or(Some(0), |r| state[r.index()]?.only());
        (get(self.base), get(self.index))
    }

    /// The addresses that it can have.
    pub(crate) fn addresses(&self, state: &State) -> Option<Values> {
        let get = |register: Option<Register>| {
            register.map_or(Some(Values::one(0)), |r| state[r.index()])
        };
        let (base, index) = (get(self.base)?, get(self.index)?);
        base.plus(index.times(self.scale)?)?
            .plus(Values::one(self.displacement))
    }

    pub(crate) fn registers(&self) -> u32 {
        self.base.map_or(0, Register::bit) | self.index.map_or(0, Register::bit)
    }

    /// The displacement that moves it by `delta`, if it can be encoded.
    pub(crate) fn displaced(&self, delta: i64) -> Option<u64> {
        let new = self.displacement.wrapping_add_signed(delta);
        let fits = i32::try_from(new as i64).is_ok();
        (self.relative || fits).then_some(new)
    }
}

/// A bit's number in a register selects another word; an address with its own
/// size of registers, or several, is not one address.
fn reaches_beyond(i: &Instruction) -> bool {
    let bits = matches!(
        i.mnemonic(),
        Mnemonic::Bt | Mnemonic::Btc | Mnemonic::Btr | Mnemonic::Bts
    );
    let old_offset = matches!(
        i.code(),
        iced_x86::Code::Mov_AL_moffs8
            | iced_x86::Code::Mov_AX_moffs16
            | iced_x86::Code::Mov_EAX_moffs32
            | iced_x86::Code::Mov_RAX_moffs64
            | iced_x86::Code::Mov_moffs8_AL
            | iced_x86::Code::Mov_moffs16_AX
            | iced_x86::Code::Mov_moffs32_EAX
            | iced_x86::Code::Mov_moffs64_RAX
    );
    let short = i.memory_base().is_gpr32() || i.memory_index().is_gpr32();
    let short = short || i.memory_base() == Iced::EIP || i.is_vsib();
    bits && i.op1_kind() == OpKind::Register || old_offset || short
}
