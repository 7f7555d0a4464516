//! Finds the targets of jumps through tables of distances, as compilers write them. The targets
//! are a guess, from the instructions before the jump and from the table in memory: the copy
//! compares the distance and leaves if it is another one.

use crate::registers::Register;
use crate::request::{Code, Memory};
use alloc::vec::Vec;
use iced_x86::{Instruction, Mnemonic, OpKind, Register as Iced};
use sunder_access::Address;

/// The most targets of one jump; the original code does jumps with more.
const MOST: usize = 24;
/// The most instructions between the parts of such a jump.
const NEAR: usize = 12;

/// A table of distances.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    /// The address of the table, to which the distances are added.
    pub base: u64,
    /// The targets, ascending, each once.
    pub targets: Vec<u64>,
}

/// The table of a jump to a register. The instructions before the jump are given in reverse.
pub(crate) fn table<'a>(
    jump: &Instruction,
    before: impl Iterator<Item = &'a Instruction>,
    code: &Code<'_>,
    memory: Memory<'_>,
) -> Option<Table> {
    if !jump.is_jmp_near_indirect() || jump.op0_kind() != OpKind::Register {
        return None;
    }
    let mut before = before.take(NEAR);
    let sum = before.next()?;
    let plain = |i: &Instruction| {
        i.op_count() == 2 && i.op0_kind() == OpKind::Register && i.op0_register().is_gpr64()
    };
    if sum.mnemonic() != Mnemonic::Add
        || !plain(sum)
        || sum.op1_kind() != OpKind::Register
        || sum.op0_register() != jump.op0_register()
        || sum.op0_register() == sum.op1_register()
        || sum.next_ip() != jump.ip()
    {
        return None;
    }
    let parts = [sum.op0_register(), sum.op1_register()];
    let mut base = None;
    let mut loaded: Option<&Instruction> = None;
    for i in before.filter(|i| plain(i) && parts.contains(&i.op0_register())) {
        match (i.mnemonic(), loaded) {
            (Mnemonic::Movsxd, None) if is_distance(i) => loaded = Some(i),
            (Mnemonic::Lea, Some(load)) if i.memory_base() == Iced::RIP => {
                if i.op0_register() == load.memory_base() {
                    base = Some(i.memory_displacement64());
                }
                break;
            }
            _ => break,
        }
    }
    let base = base?;
    let mut targets = Vec::new();
    for number in 0..MOST as u64 {
        let at = Address(base.wrapping_add(4 * number));
        let Some(distance) = (memory.0)(at, 4) else {
            break;
        };
        let target = base.wrapping_add_signed(i64::from(distance as u32 as i32));
        // An entry that leads out of the function is beyond the table's end.
        if !code.contains(target) {
            break;
        }
        targets.push(target);
    }
    targets.sort_unstable();
    targets.dedup();
    (!targets.is_empty()).then_some(Table { base, targets })
}

fn is_distance(i: &Instruction) -> bool {
    i.op1_kind() == OpKind::Memory && i.memory_index_scale() == 4
}

/// The two registers that the sum before the jump adds.
pub(crate) fn parts(sum: &Instruction) -> Option<[Register; 2]> {
    Some([
        Register::whole(sum.op0_register())?,
        Register::whole(sum.op1_register())?,
    ])
}
