//! What a program needs that this process executes (`exec`), so that it is isolated in this one's
//! place. The runtime library, which interposes the exec functions, asks for it.
//!
//! Contexts: pre-init, normal, post-fork; also in a vforked child, which has its parent's memory.

use crate::control;
use core::ffi::c_char;
use core::sync::atomic::Ordering::{Acquire, Relaxed};
use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64};
use sunder_guest::system;
use sunder_wire::isolation::Control;

/// Bytes of the longest value that is kept, and one more.
pub const LONGEST: usize = 256;

/// The environment variable's value as this program got it, with its final zero byte. A copy,
/// because programs overwrite their first environment.
static VALUE: [AtomicU8; LONGEST] = [const { AtomicU8::new(0) }; LONGEST];
static IS_KEPT: AtomicU32 = AtomicU32::new(0);

/// Keeps the value. Called once, at the start; a value that is too long is not passed on.
pub fn keep(value: &[u8]) {
    if value.len() >= LONGEST {
        return;
    }
    for (to, from) in VALUE.iter().zip(value) {
        to.store(*from, Relaxed);
    }
    IS_KEPT.store(1, Relaxed);
}

/// Whether the program with this control file was never changed and is not being changed now, so
/// that another program can begin with the same file. A fork undoes all changes but the hooks.
pub fn is_untouched(control: &Control) -> bool {
    control.conversions.load(Acquire) == 0
        && control.range_count.load(Acquire) == 0
        && control.hooks.iter().flatten().all(is_zero)
        && control.slots.iter().all(|s| s.thread.load(Acquire) == 0)
}

fn is_zero(end: &AtomicU64) -> bool {
    end.load(Acquire) == 0
}

/// The variable's value for a program that this process executes; null if it gets none.
#[unsafe(no_mangle)]
pub extern "C" fn sunder_isolate_carried() -> *const c_char {
    let is_meant = control::get().is_some_and(|control| {
        control.process.load(Relaxed) == system::process_id() && is_untouched(control)
    });
    if is_meant && IS_KEPT.load(Relaxed) == 1 {
        VALUE.as_ptr().cast()
    } else {
        core::ptr::null()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_program_is_not_untouched() {
        let touches: [fn(&Control); 5] = [
            |_| {},
            |control| control.conversions.store(1, Relaxed),
            |control| control.range_count.store(1, Relaxed),
            |control| control.hooks[3][1].store(1, Relaxed),
            |control| control.slots[127].thread.store(7, Relaxed),
        ];
        for (i, touch) in touches.into_iter().enumerate() {
            let control = crate::testing::control();
            touch(&control);
            assert_eq!(is_untouched(&control), i == 0, "{i}");
        }
    }
}
