//! The single memory operand of an instruction, if another displacement can move it.

use crate::effects::State;
use crate::pointers::is_through;
use crate::registers::Register;
use crate::values::Values;
use iced_x86::{Code, FlowControl, Instruction, Register as Iced};
use sunder_x86::{Action, Manual, Role};

/// The widest plain operand (AVX-512); wider accesses save the processor's state.
const WIDEST: u64 = 64;

/// A memory operand.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Operand {
    pub base: Option<Register>,
    pub index: Option<Register>,
    pub scale: u64,
    /// The displacement; for an operand relative to rip, its address.
    pub displacement: u64,
    pub width: u64,
    pub relative: bool,
}

impl Operand {
    /// `None` if the instruction has no such operand, or accesses other memory too.
    pub(crate) fn of(i: &Instruction, manual: &mut Manual) -> Option<Self> {
        let calls = i.is_call_near_indirect() && is_through(i);
        if !(i.flow_control() == FlowControl::Next || i.is_jmp_near_indirect() || calls)
            || has_long_displacement(i)
        {
            return None;
        }
        let does = manual.does(i);
        // A call also pushes its return address.
        let access = if calls {
            does.accesses().find(|a| a.action == Action::Read)
        } else {
            does.only_access()
        };
        let access = access.filter(|a| a.role == Role::Operand)?;
        let width = u64::from(access.width);
        // An address of 32 bits would have to stay within 32 bits; one to which a bit number or
        // a vector is added is not a single address.
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

    /// Its address, for these values of its registers.
    pub(crate) const fn address(&self, base: u64, index: u64) -> u64 {
        base.wrapping_add(index.wrapping_mul(self.scale))
            .wrapping_add(self.displacement)
    }

    /// The values of its base and index, if they are known; 0 for a register that it lacks.
    pub(crate) fn single(&self, state: &State) -> (Option<u64>, Option<u64>) {
        let get =
            |register: Option<Register>| register.map_or(Some(0), |r| state[r.index()]?.only());
        (get(self.base), get(self.index))
    }

    /// All addresses that it can have.
    pub(crate) fn addresses(&self, state: &State) -> Option<Values> {
        let get = |register: Option<Register>| {
            register.map_or(Some(Values::one(0)), |r| state[r.index()])
        };
        let (base, index) = (get(self.base)?, get(self.index)?);
        if self.base == self.index {
            return base
                .times(self.scale + 1)?
                .plus(Values::one(self.displacement));
        }
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

/// Whether the operand has an 8-byte displacement; only these instructions do.
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
