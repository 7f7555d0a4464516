//! Which flags are still wanted. A guard compares, which changes them, so it can
//! only stand where the rest of the copy sets them again before it looks.

use crate::flow::Graph;
use alloc::collections::{BTreeMap, BTreeSet};
use iced_x86::{Instruction, Mnemonic, OpKind, RflagsBits};

/// What a comparison changes.
const COMPARED: u32 = RflagsBits::OF
    | RflagsBits::SF
    | RflagsBits::ZF
    | RflagsBits::AF
    | RflagsBits::CF
    | RflagsBits::PF;

/// What an instruction does with flags.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flags {
    read: u32,
    /// Certain to be set anew, or undefined from here on.
    set: u32,
}

impl Flags {
    /// A kernel call brings them all back.
    pub(crate) const fn of_kernel_call() -> Self {
        Self { read: 0, set: 0 }
    }

    pub(crate) fn of(i: &Instruction) -> Self {
        // With a count of zero these leave the flags as they were.
        let counted = match i.mnemonic() {
            Mnemonic::Shl
            | Mnemonic::Shr
            | Mnemonic::Sar
            | Mnemonic::Rol
            | Mnemonic::Ror
            | Mnemonic::Rcl
            | Mnemonic::Rcr
            | Mnemonic::Shld
            | Mnemonic::Shrd => {
                let last = i.op_count().saturating_sub(1);
                i.op_kind(last) == OpKind::Register
                    || i.try_immediate(last)
                        .is_ok_and(|n| n & 63 == 0 || n & 31 == 0)
            }
            _ => i.has_rep_prefix() || i.has_repne_prefix(),
        };
        Self {
            read: i.rflags_read(),
            set: if counted { 0 } else { i.rflags_modified() },
        }
    }
}

/// The instructions before which no comparison may stand. Looks at all that is known
/// of the function: what a loop leaves behind is often not looked at either.
pub(crate) fn wanted(graph: &Graph) -> BTreeSet<usize> {
    let mut live: BTreeMap<usize, u32> = BTreeMap::new();
    loop {
        let mut changed = false;
        for n in (0..graph.nodes.len()).rev() {
            let node = &graph.nodes[n];
            let after = if node.exits {
                COMPARED
            } else {
                let next = node.next.iter().filter_map(|next| live.get(next));
                next.fold(0, |all, &flags| all | flags)
            };
            let before = (after & !node.flags.set | node.flags.read) & COMPARED;
            changed |= live.insert(n, before) != Some(before);
        }
        if !changed {
            break;
        }
    }
    let wanted = live.into_iter().filter(|&(_, flags)| flags != 0);
    wanted.map(|(n, _)| n).collect()
}
