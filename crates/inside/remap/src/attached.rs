//! The library in a program that was already running. The tool maps it there without the program's
//! loader, so no function is interposed: the hooks around the C library's kernel calls
//! ([`crate::before`], [`crate::signal_calls`]) do here what [`crate::signals`], [`crate::calls`],
//! [`crate::spawn`] and [`crate::syscall`] do in a preloaded library. The tool calls [`lead`],
//! [`begin`], [`end`], [`apply`] and [`roll_back`] in one thread while all threads are stopped.
//! Pages are moved only in this way, and only when no thread is between a hook and its call. If the
//! tool is killed meanwhile, the thread finishes the call while the others run.
//!
//! Contexts: all.

use crate::before::before;
use crate::shared::{control, set_alive, set_control};
use crate::{area, fault, handlers, hooks, parked, peek, process, program, stacks};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use sunder_guest::system::{self, Action};
use sunder_hooks::{ENTRIES, lead_to};
use sunder_wire::attach::{Begin, MAGIC, Table};
use sunder_wire::remap::{BY_TOOL, Control, READY};

/// The table of pointers, which any thread may read.
struct Offered(#[allow(dead_code, reason = "the tool reads it")] Table<*const ()>);

// SAFETY: the table never changes.
unsafe impl Sync for Offered {}

/// The table in which the tool finds this library's functions.
#[cfg(not(test))]
#[unsafe(no_mangle)]
static SUNDER_ATTACH: Offered = Offered(Table {
    magic: MAGIC,
    lead: lead as *const (),
    begin: begin as *const (),
    end: end as *const (),
    apply: apply as *const (),
    roll_back: roll_back as *const (),
    instead: ENTRIES[0] as *const (),
    failed: ENTRIES[1] as *const (),
    before: ENTRIES[2] as *const (),
    parked: parked::WAITS as *const (),
});

/// The address to which the program's signal handlers return, as the C library set it.
static RESTORER: AtomicUsize = AtomicUsize::new(0);
const RESTORES: u64 = 0x0400_0000;

/// Prepares everything that hooks need, and runs before they are written: a thread that enters one
/// must know whether the process is its own, and must not block SIGSEGV from then on.
///
/// # Safety
/// `with` and all that it points to is mapped and stays so; all other threads are stopped.
unsafe extern "C" fn lead(with: &Begin) -> i64 {
    // SAFETY: the caller upholds this function's contract.
    let stacks = unsafe {
        set_alive(with.alive as *mut AtomicU32);
        let count = with.stack_count as usize;
        core::slice::from_raw_parts(with.stacks as *const [u64; 2], count)
    };
    for &[at, len] in stacks {
        if !stacks::add(at, len) {
            return libc::ENOSPC.into();
        }
    }
    handlers::forget();
    process::record();
    process::set_hooked(true);
    lead_to(hooks::HOOKS, before);
    0
}

/// # Safety
/// As [`lead`], which has run before.
unsafe extern "C" fn begin(with: &Begin) -> i64 {
    let mapped = with.control;
    let Some(own) = system::action(libc::SIGSEGV as usize) else {
        return libc::EPERM.into();
    };
    program::set_kernels(&own);
    handlers::put_in();
    let restores = handlers::all()
        .map(handlers::wanted)
        .find(|a| handlers::has_handler(a) && a.flags & RESTORES != 0);
    if let Some(action) = restores {
        RESTORER.store(action.restorer, Ordering::Relaxed);
    }
    if own.flags & RESTORES != 0 {
        RESTORER.store(own.restorer, Ordering::Relaxed);
    }
    if !install_handler() {
        end();
        return libc::EPERM.into();
    }
    peek::open();
    let mapped = mapped as *mut Control;
    // SAFETY: the tool has mapped the whole file there, and the mapping stays.
    unsafe {
        set_control(mapped);
        (*mapped)
            .process
            .store(system::process_id(), Ordering::Relaxed);
        (*mapped).ready.store(READY, Ordering::Release);
    }
    0
}

/// Installs our handler of SIGSEGV in the kernel.
fn install_handler() -> bool {
    let known = RESTORER.load(Ordering::Relaxed);
    let ours = Action {
        handler: fault::handler as *const () as usize,
        flags: (libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART) as u64 | RESTORES,
        restorer: if known == 0 {
            restore as *const () as usize
        } else {
            known
        },
        mask: u64::MAX,
    };
    handlers::install(libc::SIGSEGV as usize, &ours)
}

/// As the C library's `__restore_rt`, for programs in which no handler has shown its address.
#[unsafe(naked)]
unsafe extern "C" fn restore() {
    core::arch::naked_asm!("mov rax, 15", "syscall")
}

/// Gives the program's handlers back to the kernel; afterwards this library does nothing. As in
/// [`begin`], other threads may run meanwhile, and their calls are answered until all handlers are
/// given back.
extern "C" fn end() {
    peek::close();
    handlers::take_out();
    let ours = fault::handler as *const () as usize;
    if system::action(libc::SIGSEGV as usize).is_some_and(|a| a.handler == ours) {
        loop {
            let wanted = program::get_kernels();
            handlers::install(libc::SIGSEGV as usize, &wanted);
            if program::get_kernels() == wanted {
                break;
            }
        }
    }
    // SAFETY: `set_control` accepts null.
    unsafe { set_control(null_mut()) };
    process::set_hooked(false);
}

extern "C" fn apply(number: u64) {
    let area = control().and_then(|c| c.areas.get(number as usize));
    if let Some(area) = area {
        area::apply(area, number);
    }
}

/// Every area is moved or not at this point: threads are not stopped in the middle of a move.
extern "C" fn roll_back(number: u64) {
    let area = control().and_then(|c| c.areas.get(number as usize));
    if let Some(area) = area {
        area::roll_back(area, BY_TOOL);
    }
}
