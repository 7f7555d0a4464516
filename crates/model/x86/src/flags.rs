//! Which flags an instruction reads and changes.

use crate::memory::is_repeated;
use iced_x86::{Instruction, Mnemonic, OpKind, RflagsBits};

/// Flags, as bits of [`iced_x86::RflagsBits`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags {
    /// Flags that may be read.
    pub read: u32,
    /// Flags that may be changed or become undefined.
    pub changed: u32,
    /// Those of the changed ones that are always overwritten or become undefined.
    pub replaced: u32,
}

impl Flags {
    /// The flags that `i` reads and changes.
    #[must_use]
    pub fn of(i: &Instruction) -> Self {
        let modified = i.rflags_modified();
        // For iced, a rotation by the width plus the carry is a rotation by nothing. Processors
        // change the overflow flag nevertheless.
        let through_carry = matches!(i.mnemonic(), Mnemonic::Rcl | Mnemonic::Rcr);
        let (read, changed) = if through_carry {
            (RflagsBits::CF, RflagsBits::CF | RflagsBits::OF)
        } else {
            (0, 0)
        };
        Self {
            read: i.rflags_read() | read,
            changed: modified | changed,
            replaced: if may_do_nothing(i) { 0 } else { modified },
        }
    }
}

/// Whether the shift count may be zero; then all flags keep their values.
fn may_do_nothing(i: &Instruction) -> bool {
    use Mnemonic as M;
    match i.mnemonic() {
        M::Shl
        | M::Sal
        | M::Shr
        | M::Sar
        | M::Rol
        | M::Ror
        | M::Rcl
        | M::Rcr
        | M::Shld
        | M::Shrd => {
            let last = i.op_count().saturating_sub(1);
            i.op_kind(last) == OpKind::Register
                || i.try_immediate(last)
                    .is_ok_and(|n| n & 63 == 0 || n & 31 == 0)
        }
        _ => is_repeated(i),
    }
}
