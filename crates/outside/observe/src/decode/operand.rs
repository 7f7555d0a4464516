//! The memory operands of an instruction: which bytes, relative to which
//! registers, and what is done to them. What is not said here is not claimed:
//! stack accesses of push, pop, call and ret, gathers, scatters, masked vectors
//! and saved states have no operand, although [`sunder_x86`] knows of them.

use super::effect::{Index, Known, RBP, RSP, Register, scaled};
use sunder_access::{Address, Kind};
use sunder_x86::register::RCX;
use sunder_x86::{Access, Certainty, Does, Reach, Role};

/// One memory operand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Operand {
    base: Option<Register>,
    index: Option<Index>,
    /// With `base` and `index` absent, the address.
    displacement: u64,
    pub width: u8,
    pub kind: Kind,
    /// The address is 32 bits wide (prefix 67).
    narrow: bool,
    /// Part of a repeated string instruction, which touches nothing if the
    /// count is zero.
    repeated: bool,
    /// Whether base and index tell the address at all.
    addressable: bool,
}

/// A place relative to `rsp` or `rbp`, or an absolute one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Site {
    pub base: Option<Register>,
    pub displacement: i64,
}

/// Whether and where an operand touches memory.
pub(super) enum Touch {
    /// At this address.
    At(Address),
    /// Nowhere: a string instruction with count zero.
    Nothing,
    /// The registers are not known.
    Unknown,
}

impl Operand {
    /// Evaluates it with the registers before the instruction.
    pub(super) fn touch(&self, before: &Known) -> Touch {
        if self.repeated {
            match before.get(RCX) {
                Some(0) => return Touch::Nothing,
                Some(_) => {}
                None => return Touch::Unknown,
            }
        }
        match self.address(before) {
            Some(address) if self.addressable => Touch::At(address),
            _ => Touch::Unknown,
        }
    }

    /// The sum that its address is; `None` if it is not simply that.
    pub(super) const fn sum(&self) -> Option<(Option<Register>, Option<Index>, u64)> {
        if self.narrow || self.repeated || !self.addressable {
            return None;
        }
        Some((self.base, self.index, self.displacement))
    }

    /// The registers in it, one bit each.
    pub(super) fn registers(&self) -> u16 {
        let index = self.index.map(|index| index.register);
        let both = [self.base, index].into_iter().flatten();
        both.fold(0, |all, register| all | 1 << register)
    }

    /// Which variable of a frame (or, without base, which global) it is, as far
    /// as that can be told without knowing registers.
    pub(super) fn site(&self) -> Option<Site> {
        let is_fixed = self.base.is_none_or(|base| matches!(base, RSP | RBP));
        (is_fixed && self.index.is_none()).then_some(Site {
            base: self.base,
            displacement: self.displacement as i64,
        })
    }

    fn address(&self, before: &Known) -> Option<Address> {
        let base = match self.base {
            Some(base) => before.get(base)?,
            None => 0,
        };
        let sum = base
            .wrapping_add(scaled(self.index, before)?)
            .wrapping_add(self.displacement);
        Some(Address(if self.narrow { sum & 0xffff_ffff } else { sum }))
    }
}

/// The operands of an instruction.
#[derive(Debug, Default)]
pub(super) struct Operands {
    pub known: Vec<Operand>,
    /// How many are relative to `fs` or `gs`.
    pub segment_relative: u8,
}

/// Whether the access is claimed. Left out are those of which registers alone do not tell
/// the bytes: elements of a mask's choice, and what only the processor's state decides. Also
/// left out is what is written nowhere in the instruction, the stack above all: the code
/// around it has little to say of what others do with these bytes.
fn is_claimed(access: &Access) -> bool {
    matches!(access.role, Role::Operand | Role::String)
        && matches!(access.certainty, Certainty::Always | Certainty::Counted)
}

/// Collects the operands of an instruction that does this into `out`.
pub(super) fn collect(does: &Does, out: &mut Operands) {
    out.known.clear();
    out.segment_relative = 0;
    for access in does.accesses().filter(|access| is_claimed(access)) {
        // Widths beyond 64 bytes are saved states, whose width is often not told at all.
        let (Some(kind), width @ 1..=64) = (crate::watch::kind_of(access), access.width) else {
            continue;
        };
        let place = access.place;
        if place.segment.is_some() {
            out.segment_relative += 1;
            continue;
        }
        out.known.push(Operand {
            base: place.base.map(|base| base.register),
            index: place.index.map(|index| Index {
                register: index.part.register,
                scale: index.scale,
            }),
            displacement: place.displacement,
            width: width as u8,
            kind,
            narrow: place.bits == 32,
            repeated: access.certainty == Certainty::Counted,
            addressable: place.reach == Reach::There
                && place.index.is_none_or(|index| index.part.bits >= 32),
        });
    }
}
