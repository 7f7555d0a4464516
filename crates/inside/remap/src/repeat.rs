//! Repeats kernel calls that could not access moved bytes. Contexts: all.

use crate::{area, shared};
use sunder_hooks::Call;
use sunder_wire::remap::BY_KERNEL;

/// Repeats a call that failed with `EFAULT`, if moved bytes may be the reason.
///
/// # Safety
/// `call` is the program's own call, which has just failed with `EFAULT`.
pub unsafe fn repeat(call: &mut Call) {
    // Another thread may have moved them back since the call failed.
    if shared::areas().next().is_none() {
        return;
    }
    loop {
        let moves = shared::moves();
        area::roll_back_all(BY_KERNEL);
        // SAFETY: the program's own call, with its own arguments.
        unsafe { call.make() };
        // The bytes may have been moved again meanwhile.
        if call.result != -(libc::EFAULT as isize) || shared::moves() == moves {
            return;
        }
    }
}
