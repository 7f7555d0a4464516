//! Whether the machine's processor and the one answer to what an instruction does agree.
//! The machine executes; what it touched and changed must be what the answer tells.

use crate::machine::{Flags, Machine};
use iced_x86::{Instruction, RflagsBits};
use sunder_x86::{Flags as Told, Manual};

/// Panics if the answer does not tell of something that `i` has just done to `after`, from
/// these registers and flags on, or of memory that it has touched (addresses and widths).
pub fn check(
    manual: &mut Manual,
    i: &Instruction,
    before: (&[u64; 16], Flags),
    after: &Machine,
    touched: &[(u64, u64)],
) {
    let does = manual.does(i);
    for (number, (old, new)) in before.0.iter().zip(&after.general).enumerate() {
        let answered = does.registers.written >> number & 1 != 0;
        assert!(
            old == new || answered,
            "{:?} writes register {number}",
            i.code()
        );
    }
    let (old, new) = (before.1, after.flags);
    let changed = Told::of(i).changed;
    for (flag, old, new) in [
        (RflagsBits::CF, old.carry, new.carry),
        (RflagsBits::ZF, old.zero, new.zero),
        (RflagsBits::SF, old.sign, new.sign),
        (RflagsBits::OF, old.overflow, new.overflow),
        (RflagsBits::PF, old.parity, new.parity),
    ] {
        let answered = changed & flag != 0;
        assert!(
            old == new || answered,
            "{:?} changes flag {flag:#x}",
            i.code()
        );
    }
    for &(at, width) in touched {
        let answered = does.accesses().any(|access| {
            let start = access
                .place
                .address(|r| before.0.get(usize::from(r)).copied());
            start.is_some_and(|start| start <= at && at + width <= start + u64::from(access.width))
        });
        assert!(answered, "{:?} touches {width} bytes at {at:#x}", i.code());
    }
}
