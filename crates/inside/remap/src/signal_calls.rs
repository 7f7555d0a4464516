//! Kernel calls about signals in a program that was already running, made in the place of its own:
//! what [`crate::signals`] does in a preloaded library. No thread may block SIGSEGV, because a
//! fault would then end the process.
//!
//! Contexts: all.

use crate::before::before;
use crate::peek::word_in_place;
use crate::process::{is_another, is_guest, is_here};
use crate::program::{self, BIT};
use crate::repeat::repeat;
use crate::shared::{control, withdraw};
use crate::{area, contexts, fault, handlers, peek, robust, shared, stacks, under_way, uses};
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
    if size != 8 || !(fault || handlers::is_shown(signal)) {
        // SAFETY: the program's own call, with its own arguments.
        return unsafe { make(call) };
    }
    // After confinement this library must not ask the kernel whether this is a `vfork` child. For
    // signals other than SIGSEGV that does no harm unless the child sets handlers.
    let may_ask = fault || !shared::is_confined();
    let (before, are_known) = (handlers::wanted(signal), handlers::are_known());
    // Where the library was taken out, a child of `vfork` is no guest, and shares our memory.
    let is_others = || is_guest() || !handlers::are_in_kernel() && is_another();
    if may_ask && is_others() || fault && !handlers::are_in_kernel() {
        // SAFETY: the program's own call, with its own arguments; the kernel has written to `old`.
        unsafe {
            make(call);
            hide(call, &before, false);
        }
        return;
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
            if !handlers::are_in_kernel() {
                // The library was taken out meanwhile, and has perhaps given the old action back.
                handlers::install(signal, &wanted);
            }
        }
        // SAFETY: the program passed this address for the old action.
        let written = old == 0 || unsafe { write_action(old as u64, &before) };
        call.result = if written { 0 } else { -(libc::EFAULT as isize) };
        return;
    }
    let shown;
    if let Some(wanted) = &wanted {
        handlers::set_wanted(signal, wanted);
        if handlers::are_in_kernel() && handlers::has_handler(wanted) {
            shown = handlers::shown(wanted);
            call.arguments[1] = &raw const shown as usize;
        }
    }
    // SAFETY: the program's own call, perhaps with an action of ours.
    unsafe { call.make() };
    call.arguments[1] = new;
    // If only the old action could not be written, the new one is set nevertheless.
    let refused = call.result < 0 && call.result != -(libc::EFAULT as isize);
    if refused && wanted.is_some() {
        handlers::set_wanted(signal, &before);
    }
    // SAFETY: the kernel has written to `old`.
    unsafe { hide(call, &before, are_known) };
    if !handlers::are_in_kernel() {
        // The library was taken out meanwhile, and may have missed what this call has set.
        handlers::give_back(signal);
    }
}

/// Shows the program its own old action where the kernel has returned ours; and, if the actions
/// `are_known`, where it has returned the new one, because the library was being taken out.
///
/// # Safety
/// `call` is a `rt_sigaction` of the program's that was made.
unsafe fn hide(call: &Call, before: &Action, are_known: bool) {
    let old = call.arguments[2] as u64;
    if call.result != 0 || old == 0 {
        return;
    }
    let Some(action) = read_action(old) else {
        return;
    };
    let own = if action.handler == fault::handler as *const () as usize {
        program::get_kernels()
    } else if handlers::is_ours(&action) || are_known && action.handler != before.handler {
        *before
    } else {
        return;
    };
    // SAFETY: the kernel has just written there.
    unsafe { write_action(old, &own) };
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
    if let Some(wanted) = wanted {
        robust::blocks(wanted);
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;
    use sunder_guest::system;

    const SIGNAL: usize = 50;
    const ROUNDS: usize = 300;
    const CHANGES: usize = 200;

    extern "C" fn first() {}

    extern "C" fn second() {}

    /// Sets an action as the program does; returns the one before.
    fn set(action: &Action) -> Action {
        let mut old = Action::default();
        let mut call = Call {
            arguments: [
                SIGNAL,
                &raw const *action as usize,
                &raw mut old as usize,
                8,
                0,
                0,
            ],
            result: 0,
            number: libc::SYS_rt_sigaction,
        };
        // SAFETY: both actions live until the call returns.
        unsafe { instead(&mut call) };
        assert_eq!(call.result, 0);
        old
    }

    /// The tool was killed while it took the library out, so the program's threads run beside that.
    #[test]
    fn actions_set_while_the_library_is_taken_out_stay() {
        crate::process::record();
        let handlers = [
            first as *const () as usize,
            libc::SIG_DFL,
            second as *const () as usize,
            libc::SIG_IGN,
        ];
        let action = |change: usize| Action {
            handler: handlers[change % handlers.len()],
            ..Action::default()
        };
        let together = Barrier::new(2);
        let mut wrong = Vec::new();
        std::thread::scope(|threads| {
            threads.spawn(|| {
                for _ in 0..ROUNDS {
                    together.wait();
                    handlers::take_out();
                    together.wait();
                }
            });
            let mut before = action(3);
            set(&before);
            for round in 0..ROUNDS {
                handlers::put_in();
                together.wait();
                for change in 0..CHANGES + round % handlers.len() {
                    let new = action(change);
                    let old = set(&new).handler;
                    if old != before.handler {
                        wrong.push((round, change, old));
                    }
                    before = new;
                }
                together.wait();
                let kernels = system::action(SIGNAL).map_or(usize::MAX, |a| a.handler);
                if kernels != before.handler {
                    wrong.push((round, usize::MAX, kernels));
                }
            }
        });
        assert!(wrong.is_empty(), "{wrong:x?}");
    }
}
