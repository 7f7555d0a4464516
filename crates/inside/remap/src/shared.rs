//! The memory that this library shares with the tool, and whether it is in use in this process.
//!
//! Contexts: all.

use core::ptr::null_mut;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering, fence};
use sunder_guest::system::{self, Reach};
use sunder_wire::remap::{ACTIVE, APPLYING, Area, Control, FREE, ROLLING_BACK, WITHDRAWN};

static CONTROL: AtomicPtr<Control> = AtomicPtr::new(null_mut());
/// The number of running calls that make processes or change memory; areas are not moved meanwhile.
static HOLDS: AtomicU32 = AtomicU32::new(0);

/// Points to a word that is 1 in the program that the tool knows. In a program that was already
/// running the word lies on a page that is empty in forked children, however they are made.
static ALIVE: AtomicPtr<AtomicU32> = AtomicPtr::new((&raw const ALWAYS).cast_mut());
static ALWAYS: AtomicU32 = AtomicU32::new(1);

/// The shared control data; `None` before the constructor has run and in forked children.
#[inline]
pub fn control() -> Option<&'static Control> {
    if !is_alive() {
        return None;
    }
    // SAFETY: the pointer is null or that of a mapping of the whole file, which is never removed.
    unsafe { CONTROL.load(Ordering::Acquire).as_ref() }
}

/// Waits while a word of the shared file has this `value`, at most for so long. Spurious returns
/// are possible.
pub fn wait(word: &AtomicU32, value: u32, nanoseconds: u64) {
    system::wait(word, value, Some(nanoseconds), Reach::All);
}

/// Wakes all threads, in all processes, that wait for a word of the shared file.
pub fn wake(word: &AtomicU32) {
    system::wake(word, i32::MAX, Reach::All);
}

/// Whether the word of [`set_alive`] says that this is the program that the tool knows.
#[inline]
pub fn is_alive() -> bool {
    // SAFETY: the word is never freed.
    unsafe { (*ALIVE.load(Ordering::Acquire)).load(Ordering::Relaxed) != 0 }
}

/// # Safety
/// The word is never freed.
pub unsafe fn set_alive(word: *mut AtomicU32) {
    ALIVE.store(word, Ordering::Release);
}

/// # Safety
/// `control` is null or the address of a mapping of the whole file, which is never removed.
pub unsafe fn set_control(control: *mut Control) {
    CONTROL.store(control, Ordering::Release);
}

/// The areas that were ever moved.
pub fn areas() -> impl Iterator<Item = &'static Area> {
    control()
        .into_iter()
        .flat_map(|c| c.areas.iter())
        .filter(|a| a.state.load(Ordering::Acquire) != FREE)
}

/// Whether any bytes are away from their place.
#[inline]
pub fn anything_moved() -> bool {
    areas().any(|a| {
        matches!(
            a.state.load(Ordering::Acquire),
            APPLYING | ACTIVE | ROLLING_BACK
        )
    })
}

/// Whether the program has confined itself.
static CONFINED: AtomicBool = AtomicBool::new(false);

/// The program confines itself (seccomp): from here on this library makes no kernel call, because
/// the program may not be allowed to make it.
pub fn confine() {
    CONFINED.store(true, Ordering::SeqCst);
}

/// See [`confine`].
pub fn is_confined() -> bool {
    CONFINED.load(Ordering::Acquire)
}

/// Threads that handle a fault or the tool's signal at the moment.
static VISITS: AtomicU32 = AtomicU32::new(0);

/// A thread's stay in this library's handler, in which it may make kernel calls for bytes that are away.
/// If it began before the program confines itself, that waits for its end ([`await_visits`]). If it began
/// later, it finds all bytes back, or that the program is confined, and makes none.
pub struct Visit(());

impl Visit {
    /// Begins before the thread looks where bytes are.
    pub fn begin() -> Self {
        VISITS.fetch_add(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        Self(())
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        VISITS.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Waits until no thread is in this library's handler. To be called once all bytes are back for good,
/// by the thread that is about to confine the program. A thread that somebody else has stopped there is
/// not waited for without end.
pub fn await_visits() {
    /// In ns; longer than a thread waits for an answer of the tool.
    const LONGEST: u64 = 2_000_000_000;
    if control().is_none() {
        return;
    }
    fence(Ordering::SeqCst);
    let start = system::now();
    while VISITS.load(Ordering::SeqCst) != 0 && system::now().wrapping_sub(start) < LONGEST {
        system::give_way();
    }
}

/// The counter behind [`moves`].
static MOVES: AtomicU32 = AtomicU32::new(0);

/// The number of moves that have begun. While it does not change, bytes that were moved back are in
/// their place.
pub fn moves() -> u32 {
    MOVES.load(Ordering::SeqCst)
}

/// Counts the beginning of a move.
pub fn count_move() {
    MOVES.fetch_add(1, Ordering::SeqCst);
}

/// Held by tests that count moves, move something, or have calls under way.
#[cfg(test)]
pub static COUNTING: std::sync::Mutex<()> = std::sync::Mutex::new(());

/// While a hold lives, nothing is moved. A thread that moves sets the area's state and then looks
/// for holds; a hold is counted before it reads the states. So one of the two sees the other. This
/// is no lock, because a signal handler of the program may interrupt the taking of a hold and need
/// one itself.
pub struct Hold(());

impl Hold {
    pub fn new() -> Self {
        HOLDS.fetch_add(1, Ordering::SeqCst);
        await_moves();
        Self(())
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        end_hold();
    }
}

/// Ends a hold whose value was forgotten (`mem::forget`).
pub fn end_hold() {
    HOLDS.fetch_sub(1, Ordering::SeqCst);
}

/// Waits for threads that have begun to move an area.
fn await_moves() {
    for area in control().into_iter().flat_map(|c| c.areas.iter()) {
        while area.state.load(Ordering::SeqCst) == APPLYING {
            wait(&area.state, APPLYING, 10_000_000);
        }
    }
}

/// Whether a hold exists.
pub fn is_held() -> bool {
    HOLDS.load(Ordering::SeqCst) != 0
}

/// From here on nothing is moved any more.
pub fn withdraw() {
    if let Some(control) = control() {
        control.ready.store(WITHDRAWN, Ordering::SeqCst);
        await_moves();
    }
}
