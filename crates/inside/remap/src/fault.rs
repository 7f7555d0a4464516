//! The handler of SIGSEGV. It handles faults on moved pages and the tool's signal (the bell); all
//! others are passed to the program's handler ([`crate::program`]).
//!
//! Contexts: signal.

use crate::ask::{Answer, Manner, ask};
use crate::lookup::{self, Original, show_original};
use crate::registers::{general, goes_downwards, set_ip, stack_pointer};
use crate::shared::{self, control};
use crate::{area, cancel, contexts, interrupted, parked, peek, program};
use core::ffi::{c_int, c_void};
use core::sync::atomic::Ordering::{Acquire, Relaxed};
use core::sync::atomic::{AtomicU32, AtomicU64};
use sunder_guest::system;
use sunder_wire::remap::{
    ACTIVE, APPLY, APPLY_AGAIN, APPLYING, AREA_BYTES, Area, BY_FAULTS, BY_INSTRUCTION, BY_SIGNALS,
    BY_SILENCE, BY_TOOL, Control, FREE, ROLL_BACK, ROLLED_BACK, ROLLING_BACK, TOOL_SIGNAL,
};

/// Faults are counted in windows of so many ns.
const WINDOW: u64 = 50_000_000;
/// With more faults in one window, an area is moved back: a fault takes about 3 us, so these take
/// about a tenth of a CPU, more than moving the bytes can save.
const MOST_FAULTS: u64 = 1500;
/// After each so many in one window, a fifth of those, the tool is asked though a copy is known: copies
/// may leave out ways that were thought to be taken seldom.
const MANY_FAULTS: u64 = 300;
/// It is asked so often in the life of the process, at most.
const MOST_AGAIN: u32 = 64;

/// `si_code` of signals that a process has queued.
const QUEUED: c_int = -1;

/// The handler; all signals are blocked in it. It leaves no stack frame when the program's handler
/// runs, which so finds the kernel's frame directly above its own, as natively.
///
/// # Safety
/// Called only by the kernel, as a signal handler.
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

/// The program's handler if the signal is the program's own, else 0.
///
/// # Safety
/// As [`handler`].
unsafe extern "C" fn decide(
    signal: c_int,
    info: *mut libc::siginfo_t,
    context: *mut c_void,
) -> usize {
    // SAFETY: the kernel passes valid pointers to both.
    let (about, state) = unsafe { (&*info, &mut *context.cast::<libc::ucontext_t>()) };
    // SAFETY: a queued signal has a value.
    if about.si_code == QUEUED && unsafe { about.si_value().sival_ptr } as u64 == TOOL_SIGNAL {
        // A bell that arrives after the program has confined itself needs no work.
        let visit = shared::Visit::begin();
        if !shared::is_confined() {
            on_bell();
            interrupted::restart(state, program_handles);
        }
        drop(visit);
        if cancel::has_begun() {
            parked::leave(state);
            cancel::wait(state);
            show_original(state);
        }
        return 0;
    }
    if about.si_code > 0 && (peek::failed(state) || parked::wakes(state) || redirect(about, state))
    {
        return 0;
    }
    parked::leave(state);
    show_original(state);
    // SAFETY: the kernel's own arguments, passed on unchanged.
    unsafe { program::deliver(signal, info, context) }
}

#[cfg(all(feature = "preloaded", not(test)))]
fn program_handles(signals: u64) -> bool {
    crate::signals::handles(signals)
}

/// In this build the tool stops threads to move pages and asks none by a signal.
#[cfg(not(all(feature = "preloaded", not(test))))]
fn program_handles(_signals: u64) -> bool {
    false
}

/// Does what the tool asks for.
fn on_bell() {
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

/// Handles a fault because of moved bytes: sets where the thread continues. False if the fault has
/// nothing to do with moved bytes.
fn redirect(about: &libc::siginfo_t, state: &mut libc::ucontext_t) -> bool {
    // SAFETY: the signal is a fault, which has an address.
    let address = unsafe { about.si_addr() } as u64;
    let Some(control) = control() else {
        return false;
    };
    let _visit = shared::Visit::begin();
    // An area on the same page that was used before, in case none is in use now.
    let mut past = None;
    let all = control.areas.iter().enumerate();
    for (number, area) in all.filter(|(_, a)| area::is_used(a)) {
        let on_page = within(address, area.page.load(Relaxed), area.len.load(Relaxed));
        let in_area = within(address, area.at.load(Relaxed), AREA_BYTES);
        if !on_page && !in_area {
            continue;
        }
        if matches!(area.state.load(Acquire), APPLYING | ACTIVE | ROLLING_BACK) {
            return redirect_in(control, number as u32, area, address, on_page, state);
        }
        past = past.or(Some((number as u32, area, on_page)));
    }
    past.is_some_and(|(number, area, on_page)| {
        redirect_in(control, number, area, address, on_page, state)
    })
}

const fn within(address: u64, start: u64, len: u64) -> bool {
    address.wrapping_sub(start) < len
}

fn redirect_in(
    control: &Control,
    number: u32,
    area: &Area,
    address: u64,
    on_page: bool,
    state: &mut libc::ucontext_t,
) -> bool {
    // The thread continues at the original unless the code below finds a better place.
    let Original {
        ip: here, copied, ..
    } = show_original(state);
    loop {
        let now = area.state.load(Acquire);
        match now {
            APPLYING | ROLLING_BACK => area::await_change(area, now),
            ACTIVE => break,
            // The bytes are back in their place. If the thread faults there again, the program
            // itself may not access the page, and repeating would never end.
            _ => return copied || on_page && !faulted_before(here, address, stack_pointer(state)),
        }
    }
    if !on_page {
        // A thread in a copy met bytes that were moving. Any other thread has no reason to access
        // an area.
        return copied;
    }
    area.faults.fetch_add(1, Relaxed);
    let recent = recent_faults(area);
    if recent > MOST_FAULTS {
        area::roll_back(area, BY_FAULTS);
        return true;
    }
    if area.wanted.load(Relaxed) == ROLL_BACK {
        area::roll_back(area, BY_TOOL);
        return true;
    }
    let general = general(state);
    let stack = stack_pointer(state);
    if within(stack, area.page.load(Relaxed), area.len.load(Relaxed)) {
        contexts::on_entry(stack);
        area::roll_back(area, BY_SIGNALS);
        return true;
    }
    // Copies that are known are for string instructions that go upwards, as all of a compiler do.
    let downwards = goes_downwards(state);
    let known = match downwards {
        true => None,
        false => lookup::find(control, number, here, &general, copied),
    };
    let again = !copied && known.is_some() && recent.is_multiple_of(MANY_FAULTS) && may_ask_again();
    if let Some(target) = known.filter(|_| !again) {
        set_ip(state, target);
        return true;
    }
    area.asked.fetch_add(1, Relaxed);
    let manner = Manner { downwards, again };
    match ask(control, number, here, address, &general, manner) {
        // The area may have been moved back meanwhile; the copy then faults and gets here again.
        Answer::Go(target) => set_ip(state, target),
        // There is no other copy. The thread faults again and takes the known one, if that is still there.
        Answer::No if again => {}
        Answer::No => {
            area.culprit.store(here, Relaxed);
            area::roll_back(area, BY_INSTRUCTION);
        }
        Answer::None => area::roll_back(area, BY_SILENCE),
    }
    true
}

/// Whether this thread (identified by its stack) faulted at the same instruction and page before,
/// with no move begun since. Then the fault is the program's own, because all bytes are in their
/// place. A late fault, from an access before the bytes were back, comes once for each page and
/// each move: a page may be in several areas, each moved back at some time, and an instruction may
/// access pages of several areas while they are moved back one after another.
fn faulted_before(here: u64, address: u64, stack: u64) -> bool {
    const ENTRIES: usize = 64;
    static LATE: [AtomicU64; ENTRIES] = [const { AtomicU64::new(0) }; ENTRIES];
    let page = (address >> 12).rotate_left(29);
    let which = u64::from(shared::moves()).rotate_left(17);
    let this = stack.rotate_left(43) ^ here ^ page ^ which;
    LATE.get((stack >> 12) as usize % ENTRIES)
        .is_some_and(|entry| entry.swap(this, Relaxed) == this)
}

/// How many faults there were in this window, with the present one.
fn recent_faults(area: &Area) -> u64 {
    let now = system::now();
    let start = area.window.load(Relaxed);
    if now.wrapping_sub(start) > WINDOW {
        area.window.store(now, Relaxed);
        area.window_faults.store(1, Relaxed);
        return 1;
    }
    area.window_faults.fetch_add(1, Relaxed).saturating_add(1)
}

fn may_ask_again() -> bool {
    static TIMES: AtomicU32 = AtomicU32::new(0);
    TIMES.load(Relaxed) < MOST_AGAIN && TIMES.fetch_add(1, Relaxed) < MOST_AGAIN
}

#[cfg(test)]
mod tests {
    use super::faulted_before;
    use crate::shared;

    /// A page may be in several areas, each moved back at some time. A thread's second late fault
    /// differs from a fault of the program's own in that something was moved since.
    #[test]
    fn one_late_fault_is_accepted_for_each_move() {
        const STACK: u64 = 0x7fff_0000_1000;
        const PAGE: u64 = 0x7f12_3456_7000;
        let _alone = shared::COUNTING.lock();
        let again = |here| faulted_before(here, PAGE, STACK);
        assert!(
            !again(0x1000),
            "a late fault, from before the bytes were back"
        );
        assert!(again(0x1000), "nothing has moved since");
        for _ in 0..3 {
            shared::count_move();
            assert!(!again(0x1000), "another move");
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
