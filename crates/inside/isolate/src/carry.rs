//! What a program that this process executes must be told to be isolated in its place:
//! asked for by the library that stands before the exec functions. Contexts: pre-init,
//! normal, post-fork; also in a vforked child, which has its parent's memory.

use crate::control;
use core::ffi::c_char;
use core::sync::atomic::Ordering::{Acquire, Relaxed};
use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64};
use sunder_guest::system;
use sunder_wire::isolation::Control;

const LONGEST: usize = 256;

/// The variable's value as this program got it, with its zero. A copy: programs write over
/// their first environment.
static VALUE: [AtomicU8; LONGEST] = [const { AtomicU8::new(0) }; LONGEST];
static IS_KEPT: AtomicU32 = AtomicU32::new(0);

/// Keeps the value. Called once, at the start; one that is too long is not passed on.
pub fn keep(value: &[u8]) {
    if value.len() >= LONGEST {
        return;
    }
    for (to, from) in VALUE.iter().zip(value) {
        to.store(*from, Relaxed);
    }
    IS_KEPT.store(1, Relaxed);
}

/// Whether nothing was ever done to the program that has this control file, nor is tried just
/// now: another one can begin with it. A fork turns the rest back, but leaves the hooks.
pub fn is_untouched(control: &Control) -> bool {
    control.conversions.load(Acquire) == 0
        && control.range_count.load(Acquire) == 0
        && control.hooks.iter().flatten().all(is_zero)
        && control.slots.iter().all(|s| s.thread.load(Acquire) == 0)
}

fn is_zero(end: &AtomicU64) -> bool {
    end.load(Acquire) == 0
}

/// The value that a program gets which this process executes; null if it is to have none.
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
    fn a_program_to_which_anything_was_done_is_not_untouched() {
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
