//! The library in a program that was already running. The tool maps it there without the program's
//! loader, so no function is interposed: the hooks around the C library's kernel calls do here what
//! [`crate::signals`], [`crate::calls`], [`crate::spawn`] and [`crate::raw`] do in a preloaded
//! library ([`crate::before`]). The tool calls [`lead`], [`begin`], [`end`], [`apply`] and
//! [`roll_back`] in one thread while all threads are stopped. Pages are moved only in this way, and
//! only when no thread is between a hook and its call. If the tool is killed meanwhile, the thread
//! finishes the call while the others run.
//!
//! Contexts: all.

use crate::before::before;
use crate::program::{self, BIT};
use crate::shared::{control, set_alive, set_control, withdraw};
use crate::{area, contexts, fault, handlers, hooks, peek, shared, stacks};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use sunder_guest::system::{self, Action};
use sunder_hooks::{Call, ENTRIES, lead_to};
use sunder_wire::attach::{Begin, MAGIC, Table};
use sunder_wire::remap::{BY_KERNEL, BY_SIGNALS, BY_TOOL, Control, READY};

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
});

/// The id of the process that the library was put into. A `vfork` child shares its memory for a
/// while, with another id.
static PROCESS: AtomicU32 = AtomicU32::new(0);
/// The address to which the program's signal handlers return, as the C library set it.
static RESTORER: AtomicUsize = AtomicUsize::new(0);
/// Whether hooks are written, or are about to be.
static HERE: AtomicBool = AtomicBool::new(false);
/// Whether the kernel has our handlers in place of the program's.
static OURS: AtomicBool = AtomicBool::new(false);

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
    is_this();
    HERE.store(true, Ordering::SeqCst);
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
    // If the tool is killed now, the other threads run: their `sigaction` calls must be answered
    // from here on.
    OURS.store(true, Ordering::SeqCst);
    for signal in handlers::all() {
        let Some(action) = system::action(signal) else {
            continue;
        };
        if handlers::has_handler(&action) {
            handlers::set(signal, &action);
            if action.flags & RESTORES != 0 {
                RESTORER.store(action.restorer, Ordering::Relaxed);
            }
            handlers::tell(signal, &handlers::shown(&action));
        }
    }
    if own.flags & RESTORES != 0 {
        RESTORER.store(own.restorer, Ordering::Relaxed);
    }
    if !take_signal() {
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

/// Records this process as the one that the library was put into.
pub fn is_this() {
    PROCESS.store(system::process_id(), Ordering::Relaxed);
}

/// Installs our handler of SIGSEGV in the kernel.
fn take_signal() -> bool {
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
    handlers::tell(libc::SIGSEGV as usize, &ours)
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
    for signal in handlers::all() {
        if system::action(signal).is_some_and(|a| handlers::is_ours(&a)) {
            handlers::tell(signal, &handlers::get(signal));
        }
    }
    let ours = fault::handler as *const () as usize;
    if system::action(libc::SIGSEGV as usize).is_some_and(|a| a.handler == ours) {
        loop {
            let wanted = program::get_kernels();
            handlers::tell(libc::SIGSEGV as usize, &wanted);
            OURS.store(false, Ordering::SeqCst);
            if program::get_kernels().handler == wanted.handler {
                break;
            }
        }
    }
    OURS.store(false, Ordering::SeqCst);
    // SAFETY: `set_control` accepts null.
    unsafe { set_control(null_mut()) };
    HERE.store(false, Ordering::SeqCst);
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

/// Whether this is another process in our memory, the child of a `vfork`, which has signal actions
/// of its own. A forked child is not: it has its own memory as well.
pub fn is_guest() -> bool {
    is_here() && system::process_id() != PROCESS.load(Ordering::Relaxed)
}

/// Whether the library is in use here; true from before anything can be moved, and false in forked
/// children.
fn is_here() -> bool {
    control().is_some() || HERE.load(Ordering::Acquire) && shared::is_alive()
}

/// Calls about signals, for which [`hooks`] calls [`instead`].
pub fn is_about_signals(number: i64) -> bool {
    matches!(
        number,
        libc::SYS_rt_sigaction | libc::SYS_rt_sigprocmask | libc::SYS_sigaltstack
    )
}

/// Calls that may wait, for which [`hooks`] calls [`transfer`]: `read` in a program with one
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
            hooks::again(call);
        }
    }
}

/// Reads a word of the program's, moving its bytes back if they are away.
pub fn word(at: u64) -> Option<u64> {
    peek::word(at).or_else(|| {
        area::roll_back_in(at, 8, BY_KERNEL);
        peek::word(at)
    })
}

fn read_action(at: u64) -> Option<Action> {
    Some(Action {
        handler: word(at)? as usize,
        flags: word(at + 8)?,
        restorer: word(at + 16)? as usize,
        mask: word(at + 24)?,
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
    let ours = OURS.load(Ordering::Acquire) && !(may_ask && is_guest());
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
        let told = old == 0 || unsafe { write_action(old as u64, &before) };
        call.result = if told { 0 } else { -(libc::EFAULT as isize) };
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
    let place = shared::begin_use(old as u64, 8);
    area::roll_back_in(old as u64, 8, BY_KERNEL);
    let is_guest = || !shared::is_confined() && is_guest();
    if how == libc::SIG_SETMASK as usize && new != 0 && control().is_some() && !is_guest() {
        contexts::sets_mask(new as u64, word);
    }
    let passes = new == 0 || how == libc::SIG_UNBLOCK as usize || !is_here() || is_guest();
    let wanted = if passes { None } else { word(new as u64) };
    let open;
    if let Some(wanted) = wanted
        && wanted & BIT != 0
    {
        open = wanted & !BIT;
        call.arguments[1] = &raw const open as usize;
    }
    // SAFETY: the program's own call, perhaps with a mask of ours.
    unsafe { make(call) };
    shared::end_use(place);
    call.arguments[1] = new;
}

/// `sigaltstack`: the kernel itself writes to such a stack, so nothing there may be moved.
fn stack(call: &Call) {
    let [new, old, ..] = call.arguments.map(|a| a as u64);
    area::roll_back_in(old, 24, BY_KERNEL);
    if new == 0 || control().is_none() {
        return;
    }
    let given = (word(new), word(new + 8), word(new + 16));
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
