//! The one memory operand of an instruction that another displacement can move.

use crate::effects::State;
use crate::registers::Register;
use crate::values::Values;
use iced_x86::{Code, FlowControl, Instruction, Register as Iced};
use sunder_x86::{Manual, Role};

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
    pub(crate) fn of(i: &Instruction, manual: &mut Manual) -> Option<Self> {
        if !(i.flow_control() == FlowControl::Next || i.is_jmp_near_indirect())
            || has_long_displacement(i)
        {
            return None;
        }
        let does = manual.does(i);
        let access = does.only_access().filter(|a| a.role == Role::Operand)?;
        let width = u64::from(access.width);
        // An address of 32 bits would have to move within these; one that a bit's number or
        // a vector adds to is not one address.
        if !access.place.is_plain() || width == 0 || width > WIDEST {
            return None;
        }
        let place = access.place;
        let relative = i.is_ip_rel_memory_operand();
        if relative && i.memory_base() == Iced::EIP {
            return None;
        }
        Some(Self {
            base: place.base.map(|base| Register(base.register)),
            index: place.index.map(|index| Register(index.part.register)),
            scale: u64::from(i.memory_index_scale()),
            displacement: place.displacement,
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

/// A displacement of 8 bytes, which only these have.
fn has_long_displacement(i: &Instruction) -> bool {
    matches!(
        i.code(),
        Code::Mov_AL_moffs8
            | Code::Mov_AX_moffs16
            | Code::Mov_EAX_moffs32
            | Code::Mov_RAX_moffs64
            | Code::Mov_moffs8_AL
            | Code::Mov_moffs16_AX
            | Code::Mov_moffs32_EAX
            | Code::Mov_moffs64_RAX
    )
}
