//! Kernel calls about signals in a program that was already running, made in the place of its own:
//! what [`crate::signals`] does in a preloaded library. No thread may block SIGSEGV, because a
//! fault would then end the process.
//!
//! Contexts: all.

use crate::before::before;
use crate::peek::word_in_place;
use crate::process::{is_guest, is_here};
use crate::program::{self, BIT};
use crate::repeat::repeat;
use crate::shared::{control, withdraw};
use crate::{area, contexts, handlers, peek, shared, stacks, under_way, uses};
use sunder_guest::system::Action;
use sunder_hooks::Call;
use sunder_wire::remap::{BY_KERNEL, BY_SIGNALS};

/// Calls about signals, for which [`crate::hooks`] calls [`instead`].
pub fn is_about_signals(number: i64) -> bool {
    matches!(
        number,
        libc::SYS_rt_sigaction | libc::SYS_rt_sigprocmask | libc::SYS_sigaltstack
    )
}

/// Calls that may wait, for which [`crate::hooks`] calls [`transfer`]: `read` in a program with one
/// thread, whose code has no room for a hook that runs before the call.
pub const fn is_a_transfer(number: i64) -> bool {
    number == libc::SYS_read
}

/// Runs in place of a call of [`is_a_transfer`]: does what [`before`] does, and makes the call.
///
/// # Safety
/// `call` is the program's own call.
pub unsafe fn transfer(call: &mut Call) {
    // SAFETY: the caller upholds this function's contract.
    unsafe {
        before(call);
        make(call);
    }
}

/// Runs in place of a call of [`is_about_signals`].
///
/// # Safety
/// `call` is the program's own call.
pub unsafe fn instead(call: &mut Call) {
    // SAFETY: the caller upholds this function's contract, also below.
    unsafe {
        match call.number {
            libc::SYS_rt_sigaction => action(call),
            libc::SYS_rt_sigprocmask => mask(call),
            _ => {
                stack(call);
                make(call);
            }
        }
    }
}

/// Makes the call, and makes it again if it failed because bytes had moved.
unsafe fn make(call: &mut Call) {
    // SAFETY: the program's own call, with its own arguments.
    unsafe {
        call.make();
        if call.result == -(libc::EFAULT as isize) {
            repeat(call);
        }
    }
}

fn read_action(at: u64) -> Option<Action> {
    Some(Action {
        handler: word_in_place(at)? as usize,
        flags: word_in_place(at + 8)?,
        restorer: word_in_place(at + 16)? as usize,
        mask: word_in_place(at + 24)?,
    })
}

/// # Safety
/// The program passed the address so that an action is written there.
unsafe fn write_action(at: u64, action: &Action) -> bool {
    let words = [
        action.handler as u64,
        action.flags,
        action.restorer as u64,
        action.mask,
    ];
    area::roll_back_in(at, 32, BY_KERNEL);
    words.iter().enumerate().all(|(i, &word)| {
        // SAFETY: the caller upholds this function's contract.
        unsafe { peek::set_word(at + 8 * i as u64, word) }
    })
}

/// `rt_sigaction`: the program reads a signal's action, or sets one.
unsafe fn action(call: &mut Call) {
    let [signal, new, old, size, ..] = call.arguments;
    let fault = signal == libc::SIGSEGV as usize;
    // After confinement this library must not ask the kernel whether this is a `vfork` child. For
    // signals other than SIGSEGV that does no harm unless the child sets handlers.
    let may_ask = fault || !shared::is_confined();
    let ours = handlers::are_in_kernel() && !(may_ask && is_guest());
    if size != 8 || !(fault || handlers::is_shown(signal)) || !ours {
        // SAFETY: the program's own call, with its own arguments.
        return unsafe { make(call) };
    }
    let wanted = if new == 0 {
        None
    } else {
        match read_action(new as u64) {
            Some(action) => Some(action),
            // The kernel returns the error for this address.
            // SAFETY: the program's own call, with its own arguments.
            None => return unsafe { make(call) },
        }
    };
    area::roll_back_in(old as u64, 32, BY_KERNEL);
    if fault {
        let before = program::get_kernels();
        if let Some(wanted) = wanted {
            program::set_kernels(&wanted);
        }
        // SAFETY: the program passed this address for the old action.
        let written = old == 0 || unsafe { write_action(old as u64, &before) };
        call.result = if written { 0 } else { -(libc::EFAULT as isize) };
        return;
    }
    let before = handlers::get(signal);
    let ours;
    if let Some(wanted) = wanted.filter(handlers::has_handler) {
        handlers::set(signal, &wanted);
        ours = handlers::shown(&wanted);
        call.arguments[1] = &raw const ours as usize;
    }
    // SAFETY: the program's own call, perhaps with an action of ours.
    unsafe { call.make() };
    call.arguments[1] = new;
    if call.result < 0 {
        handlers::set(signal, &before);
    } else if old != 0 && read_action(old as u64).is_some_and(|a| handlers::is_ours(&a)) {
        // SAFETY: the kernel has just written there.
        unsafe { write_action(old as u64, &before) };
    }
}

/// `rt_sigprocmask`: sets the thread's mask, but never blocks SIGSEGV.
unsafe fn mask(call: &mut Call) {
    let [how, new, old, ..] = call.arguments;
    // The kernel writes the old mask after it has changed it. If that failed and the call were
    // repeated, it would return the new mask; so the bytes are in their place before.
    let place = uses::begin_bytes(old as u64, 8, BY_KERNEL);
    let is_guest = || !shared::is_confined() && is_guest();
    if how == libc::SIG_SETMASK as usize && new != 0 && control().is_some() && !is_guest() {
        contexts::on_mask_change(new as u64, word_in_place);
    }
    let passes = new == 0 || how == libc::SIG_UNBLOCK as usize || !is_here() || is_guest();
    let wanted = if passes {
        None
    } else {
        word_in_place(new as u64)
    };
    let open;
    if let Some(wanted) = wanted
        && wanted & BIT != 0
    {
        open = wanted & !BIT;
        call.arguments[1] = &raw const open as usize;
    }
    // SAFETY: the program's own call, perhaps with a mask of ours.
    unsafe { make(call) };
    under_way::end(place);
    call.arguments[1] = new;
}

/// `sigaltstack`: the kernel itself writes to such a stack, so nothing there may be moved.
fn stack(call: &Call) {
    let [new, old, ..] = call.arguments.map(|a| a as u64);
    area::roll_back_in(old, 24, BY_KERNEL);
    if new == 0 || control().is_none() {
        return;
    }
    let given = (
        word_in_place(new),
        word_in_place(new + 8),
        word_in_place(new + 16),
    );
    let (Some(at), Some(flags), Some(len)) = given else {
        return;
    };
    if flags as i32 & libc::SS_DISABLE != 0 {
        return;
    }
    if !stacks::add(at, len) {
        withdraw();
    }
    area::roll_back_in(at, len, BY_SIGNALS);
}
