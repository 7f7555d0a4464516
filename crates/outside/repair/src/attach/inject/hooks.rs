//! The hooks that a plan and a layout make: which code of the program they replace, and where they
//! lead. Pure computation.

use crate::attach::layout::Layout;
use crate::attach::ledger::Hook;
use crate::attach::plan::Plan;
use anyhow::{Context, Result};
use sunder_wire::sites::{COPIED, Patch};
use sunder_x86::trampoline::overwritten;

/// The hooks of a plan, in its order, with their trampolines at the layout's places.
///
/// # Errors
/// If the plan contradicts itself.
pub(super) fn hooks(plan: &Plan, layout: &Layout) -> Result<Vec<Hook>> {
    let all = plan.patches().zip(&layout.places);
    all.map(|((base, patch), &to)| {
        let (start, end) = overwritten(patch).context("a plan contradicts itself")?;
        let (at, code) = original(base, patch);
        let from = base + start as u64;
        let skip = usize::try_from(from - at)?;
        let original = code.get(skip..skip + (end - start));
        Ok(Hook {
            at: from,
            original: original.context("a plan contradicts itself")?.to_vec(),
            to,
        })
    })
    .collect()
}

/// Address and bytes of the code that a patch was made of: the call, and what lies around it.
pub(super) fn original(base: u64, patch: &Patch) -> (u64, Vec<u8>) {
    const _: () = assert!(COPIED >= 5);
    let at = base + patch.entry - patch.head().len() as u64;
    (at, [patch.head(), &[0x0f, 0x05], patch.tail()].concat())
}
