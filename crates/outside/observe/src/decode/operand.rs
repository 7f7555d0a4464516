//! The memory operands of an instruction: the bytes, relative to registers, and the kind of
//! access. Some accesses that [`sunder_x86`] knows are not claimed and have no operand here:
//! those of push, pop, call and ret to the stack, gathers, scatters, masked vectors and saved
//! states.

use super::effect::{Index, KnownRegisters, RBP, RSP, Register, scaled};
use sunder_access::{Address, Kind};
use sunder_x86::register::RCX;
use sunder_x86::{Access, Certainty, Does, Reach, Role};

/// One memory operand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Operand {
    base: Option<Register>,
    index: Option<Index>,
    /// The displacement; without `base` and `index`, the address.
    displacement: u64,
    pub width: u8,
    pub kind: Kind,
    /// Whether the address is 32 bits wide (prefix 67).
    narrow: bool,
    /// Whether it belongs to a repeated string instruction, which accesses nothing if the count
    /// is zero.
    repeated: bool,
    /// Whether base and index determine the address.
    addressable: bool,
    /// Whether a mask, which no general register holds, chooses among its bytes.
    masked: bool,
}

/// An address relative to `rsp` or `rbp`, or an absolute one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Site {
    pub base: Option<Register>,
    pub displacement: i64,
}

/// Which memory an operand accesses.
pub(super) enum Touch {
    /// At this address.
    At(Address),
    /// Bytes that a mask chooses among those from this address on.
    Within(Address),
    /// None: a string instruction with count zero.
    Nothing,
    /// Not known, as its registers are not.
    Unknown,
}

impl Operand {
    /// The memory that it accesses, from the registers before the instruction.
    pub(super) fn touch(&self, before: &KnownRegisters) -> Touch {
        if self.repeated {
            match before.get(RCX) {
                Some(0) => return Touch::Nothing,
                Some(_) => {}
                None => return Touch::Unknown,
            }
        }
        match self.address(before) {
            Some(address) if self.addressable && self.masked => Touch::Within(address),
            Some(address) if self.addressable => Touch::At(address),
            _ => Touch::Unknown,
        }
    }

    /// The terms of its address; `None` if the address is not a plain sum.
    pub(super) const fn sum(&self) -> Option<(Option<Register>, Option<Index>, u64)> {
        if self.narrow || self.repeated || self.masked || !self.addressable {
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

    /// The variable of the frame (or, without base, the global) that it accesses, as far as the
    /// code alone tells.
    pub(super) fn site(&self) -> Option<Site> {
        let is_fixed = self.base.is_none_or(|base| matches!(base, RSP | RBP));
        (is_fixed && self.index.is_none()).then_some(Site {
            base: self.base,
            displacement: self.displacement as i64,
        })
    }

    fn address(&self, before: &KnownRegisters) -> Option<Address> {
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
    /// The number of operands relative to `fs` or `gs`.
    pub segment_relative: u8,
}

/// Whether the access has an operand here. Those that depend on the processor's state have none,
/// and accesses without an explicit operand, above all to the stack: the code around them tells little
/// about what other threads do with those bytes.
fn is_claimed(access: &Access) -> bool {
    matches!(access.role, Role::Operand | Role::String)
        && matches!(
            access.certainty,
            Certainty::Always | Certainty::Counted | Certainty::Masked
        )
}

/// Collects the operands of an instruction with these effects into `out`.
pub(super) fn collect(does: &Does, out: &mut Operands) {
    out.known.clear();
    out.segment_relative = 0;
    for access in does.accesses().filter(|access| is_claimed(access)) {
        // An access of more than 64 bytes is a saved state, whose width often is not known.
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
            masked: access.certainty == Certainty::Masked,
            addressable: place.reach == Reach::There
                && place.index.is_none_or(|index| index.part.bits >= 32),
        });
    }
}
