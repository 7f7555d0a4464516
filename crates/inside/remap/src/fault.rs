//! The handler of SIGSEGV: faults on pages that were moved, and the tool's bell.
//! Every other one is the program's ([`crate::program`]). Contexts: signal.

use crate::ask::{Answer, ask};
use crate::lookup::{self, General};
use crate::shared::{self, areas, control};
use crate::{area, cancel, contexts, interrupted, peek, program};
use core::ffi::{c_int, c_void};
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{Acquire, Relaxed};
use sunder_guest::system;
use sunder_wire::remap::{
    ACTIVE, APPLY, APPLY_AGAIN, APPLYING, AREA_BYTES, Area, BELL, BY_FAULTS, BY_INSTRUCTION,
    BY_SIGNALS, BY_SILENCE, BY_TOOL, Control, FREE, ROLL_BACK, ROLLED_BACK, ROLLING_BACK,
};

/// Faults are counted in windows of so many nanoseconds.
const WINDOW: u64 = 50_000_000;
/// So many in one window are more than moved bytes can be worth: a fault takes
/// about 3 us, so these take about a tenth of a CPU.
const MOST_FAULTS: u64 = 1500;

/// Registers of a context in the order of their numbers.
const ORDER: [c_int; 16] = [
    libc::REG_RAX,
    libc::REG_RCX,
    libc::REG_RDX,
    libc::REG_RBX,
    libc::REG_RSP,
    libc::REG_RBP,
    libc::REG_RSI,
    libc::REG_RDI,
    libc::REG_R8,
    libc::REG_R9,
    libc::REG_R10,
    libc::REG_R11,
    libc::REG_R12,
    libc::REG_R13,
    libc::REG_R14,
    libc::REG_R15,
];

/// `si_code` of signals that a process queues.
const QUEUED: c_int = -1;

/// The handler. All signals are blocked. It has no frame while the program's own
/// handler runs, which finds the kernel's frame above it as it would without us.
///
/// # Safety
/// Called by the kernel.
#[unsafe(naked)]
pub unsafe extern "C" fn handler(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    core::arch::naked_asm!(
        "push rdi",
        "push rsi",
        "push rdx",
        "call {decide}",
        "pop rdx",
        "pop rsi",
        "pop rdi",
        "mov r11, rax",
        "xor eax, eax",
        "test r11, r11",
        "jz 2f",
        "jmp r11",
        "2:",
        "ret",
        decide = sym decide,
    )
}

/// The program's handler if the signal is its own, else 0.
///
/// # Safety
/// As [`handler`].
unsafe extern "C" fn decide(
    signal: c_int,
    info: *mut libc::siginfo_t,
    context: *mut c_void,
) -> usize {
    // SAFETY: the kernel passes both.
    let (about, state) = unsafe { (&*info, &mut *context.cast::<libc::ucontext_t>()) };
    // SAFETY: queued signals have a value.
    if about.si_code == QUEUED && unsafe { about.si_value().sival_ptr } as u64 == BELL {
        // Of one that comes after the program has confined itself nothing is wanted any more.
        if !shared::is_confined() {
            bell();
            interrupted::begin_anew(state, program_handles);
        }
        if cancel::has_begun() {
            show_original(state);
        }
        return 0;
    }
    if about.si_code > 0 && (peek::failed(state) || redirect(about, state)) {
        return 0;
    }
    show_original(state);
    // SAFETY: handed on.
    unsafe { program::deliver(signal, info, context) }
}

pub fn ip(state: &libc::ucontext_t) -> u64 {
    state
        .uc_mcontext
        .gregs
        .get(libc::REG_RIP as usize)
        .map_or(0, |&ip| ip as u64)
}

pub fn go(state: &mut libc::ucontext_t, to: u64) {
    if let Some(ip) = state.uc_mcontext.gregs.get_mut(libc::REG_RIP as usize) {
        *ip = to as i64;
    }
}

fn general(state: &libc::ucontext_t) -> General {
    ORDER.map(|place| {
        let value = state.uc_mcontext.gregs.get(place as usize);
        value.map_or(0, |&v| v as u64)
    })
}

/// The original instruction and whether the thread is in a copy of it.
fn place(ip: u64) -> (u64, bool) {
    for area in areas() {
        match lookup::original(area, ip) {
            Some(Some(original)) => return (original, true),
            // No instruction begins here, so no thread can be here.
            Some(None) => return (ip, true),
            None => {}
        }
    }
    (ip, false)
}

/// Makes a thread that is in a copy appear, and go on, in the original: registers
/// are the same in both.
pub fn show_original(state: &mut libc::ucontext_t) {
    let here = ip(state);
    let (original, copied) = place(here);
    if copied && original != here {
        go(state, original);
    }
}

#[cfg(all(feature = "preloaded", not(test)))]
fn program_handles(signals: u64) -> bool {
    crate::signals::handles(signals)
}

/// Where threads are stopped to move, none is asked by a signal.
#[cfg(not(all(feature = "preloaded", not(test))))]
fn program_handles(_signals: u64) -> bool {
    false
}

/// What the tool wants.
fn bell() {
    interrupted::count();
    let Some(control) = control() else { return };
    for (number, area) in control.areas.iter().enumerate() {
        match (area.wanted.load(Acquire), area.state.load(Acquire)) {
            (APPLY, FREE) | (APPLY_AGAIN, ROLLED_BACK) => {
                area::apply(area, number as u64);
            }
            (ROLL_BACK, ACTIVE) => area::roll_back(area, BY_TOOL),
            _ => {}
        }
    }
}

/// Sends a thread on that could not reach moved bytes; false if the fault is none of
/// ours.
fn redirect(about: &libc::siginfo_t, state: &mut libc::ucontext_t) -> bool {
    // SAFETY: a fault has an address.
    let address = unsafe { about.si_addr() } as u64;
    let Some(control) = control() else {
        return false;
    };
    // The same page may have been moved before, in another area.
    let mut past = None;
    let all = control.areas.iter().enumerate();
    for (number, area) in all.filter(|(_, a)| area::is_used(a)) {
        let on_page = within(address, area.page.load(Relaxed), area.len.load(Relaxed));
        let in_area = within(address, area.at.load(Relaxed), AREA_BYTES);
        if !on_page && !in_area {
            continue;
        }
        if matches!(area.state.load(Acquire), APPLYING | ACTIVE | ROLLING_BACK) {
            return send_on(control, number as u32, area, address, on_page, state);
        }
        past = past.or(Some((number as u32, area, on_page)));
    }
    past.is_some_and(|(number, area, on_page)| {
        send_on(control, number, area, address, on_page, state)
    })
}

const fn within(address: u64, start: u64, len: u64) -> bool {
    address.wrapping_sub(start) < len
}

fn send_on(
    control: &Control,
    number: u32,
    area: &Area,
    address: u64,
    on_page: bool,
    state: &mut libc::ucontext_t,
) -> bool {
    let (here, copied) = place(ip(state));
    // Whatever happens, that is where it goes on if nothing better is known.
    go(state, here);
    loop {
        let now = area.state.load(Acquire);
        match now {
            APPLYING | ROLLING_BACK => area::await_change(area, now),
            ACTIVE => break,
            // The bytes are where they were; but a page that the program itself may
            // not reach would fault for ever.
            _ => return copied || on_page && !faulted_before(here, address, stack(state)),
        }
    }
    if !on_page {
        // It came out of a copy while bytes were on their way; else it has nothing to look for
        // there.
        return copied;
    }
    area.faults.fetch_add(1, Relaxed);
    if too_many(area) {
        area::roll_back(area, BY_FAULTS);
        return true;
    }
    if area.wanted.load(Relaxed) == ROLL_BACK {
        area::roll_back(area, BY_TOOL);
        return true;
    }
    let general = general(state);
    let stack = stack(state);
    if within(stack, area.page.load(Relaxed), area.len.load(Relaxed)) {
        contexts::is_entered(stack);
        area::roll_back(area, BY_SIGNALS);
        return true;
    }
    if let Some(target) = lookup::find(control, number, here, &general, copied) {
        go(state, target);
        return true;
    }
    area.asked.fetch_add(1, Relaxed);
    match ask(control, number, here, address, &general) {
        // It may have been rolled back meanwhile; the copy then faults and comes back.
        Answer::Go(target) => go(state, target),
        Answer::No => {
            area.culprit.store(here, Relaxed);
            area::roll_back(area, BY_INSTRUCTION);
        }
        Answer::None => area::roll_back(area, BY_SILENCE),
    }
    true
}

fn stack(state: &libc::ucontext_t) -> u64 {
    let [_, _, _, _, pointer, ..] = general(state);
    pointer
}

/// Whether this thread, told by its stack, faulted at the same instruction and page before, and
/// nothing was about to be moved since: then the fault is the program's own, as all bytes are
/// where it thinks. One that comes from before they were back comes once for each page and each
/// time that something moves: a page may be in several areas, of which each was put back at some
/// time, and an instruction may come to pages of several areas while they are put back one after
/// another.
fn faulted_before(here: u64, address: u64, stack: u64) -> bool {
    const PLACES: usize = 64;
    static LATE: [AtomicU64; PLACES] = [const { AtomicU64::new(0) }; PLACES];
    let page = (address >> 12).rotate_left(29);
    let which = u64::from(shared::moves()).rotate_left(17);
    let this = stack.rotate_left(43) ^ here ^ page ^ which;
    LATE.get((stack >> 12) as usize % PLACES)
        .is_some_and(|place| place.swap(this, Relaxed) == this)
}

fn too_many(area: &Area) -> bool {
    let now = system::now();
    let start = area.window.load(Relaxed);
    if now.wrapping_sub(start) > WINDOW {
        area.window.store(now, Relaxed);
        area.window_faults.store(1, Relaxed);
        return false;
    }
    area.window_faults.fetch_add(1, Relaxed) >= MOST_FAULTS
}

/// Says why and ends the program as an abort does.
pub fn end(why: &[u8]) -> ! {
    system::write(2, why);
    // SAFETY: signals to ourselves.
    unsafe { libc::abort() }
}

#[cfg(test)]
mod tests {
    use super::faulted_before;
    use crate::shared;

    /// A page may be in several areas, each put back at some time: what tells a thread's second
    /// late fault from one of the program's own is that something has moved since.
    #[test]
    fn a_late_fault_comes_once_for_each_move() {
        const STACK: u64 = 0x7fff_0000_1000;
        const PAGE: u64 = 0x7f12_3456_7000;
        let _alone = shared::COUNTING.lock();
        let again = |here| faulted_before(here, PAGE, STACK);
        assert!(!again(0x1000), "from before the bytes were back");
        assert!(again(0x1000), "nothing has moved since");
        for _ in 0..3 {
            shared::count_move();
            assert!(!again(0x1000), "another one");
        }
        assert!(again(0x1000));
        assert!(!again(0x2000), "another instruction");
        assert!(again(0x2000));
        assert!(
            !faulted_before(0x2000, PAGE + 0x3000, STACK),
            "a page of another area that is on its way back"
        );
        assert!(
            faulted_before(0x2000, PAGE + 0x3010, STACK),
            "the same page"
        );
        assert!(
            !faulted_before(0x2000, PAGE + 0x3000, STACK + 0x80_0000),
            "another thread"
        );
    }
}
