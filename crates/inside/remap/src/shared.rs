//! The memory that the tool reads and writes, and whether it is used at all.
//! Contexts: all.

use core::ptr::null_mut;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};
use sunder_guest::system::{self, Reach};
use sunder_wire::remap::{ACTIVE, APPLYING, Area, Control, FREE, ROLLING_BACK, WITHDRAWN};

static CONTROL: AtomicPtr<Control> = AtomicPtr::new(null_mut());
/// What keeps areas from being moved: calls in progress that make processes.
static HOLDS: AtomicU32 = AtomicU32::new(0);

/// 1 as long as this is the program that the tool knows. In a program that was running
/// already it lies on a page that forked children find empty, however they are made.
static ALIVE: AtomicPtr<AtomicU32> = AtomicPtr::new((&raw const ALWAYS).cast_mut());
static ALWAYS: AtomicU32 = AtomicU32::new(1);

/// What the tool wrote; none before the constructor and in forked children.
#[inline]
pub fn control() -> Option<&'static Control> {
    if !is_alive() {
        return None;
    }
    // SAFETY: null, or a mapping of the whole file that stays.
    unsafe { CONTROL.load(Ordering::Acquire).as_ref() }
}

/// Waits while a word of the shared file is `value`, at most so long; may come back for no
/// reason.
pub fn wait(word: &AtomicU32, value: u32, nanoseconds: u64) {
    system::wait(word, value, Some(nanoseconds), Reach::All);
}

/// Wakes all who wait for a word of the shared file, in all processes.
pub fn wake(word: &AtomicU32) {
    system::wake(word, i32::MAX, Reach::All);
}

/// Whether this is the program that the tool knows, as far as [`set_alive`]'s word says.
#[inline]
pub fn is_alive() -> bool {
    // SAFETY: a word that stays.
    unsafe { (*ALIVE.load(Ordering::Acquire)).load(Ordering::Relaxed) != 0 }
}

/// # Safety
/// The word stays.
pub unsafe fn set_alive(word: *mut AtomicU32) {
    ALIVE.store(word, Ordering::Release);
}

/// # Safety
/// `control` is null or the mapping of a whole file, which stays.
pub unsafe fn set_control(control: *mut Control) {
    CONTROL.store(control, Ordering::Release);
}

/// The areas that have ever been moved.
pub fn areas() -> impl Iterator<Item = &'static Area> {
    control()
        .into_iter()
        .flat_map(|c| c.areas.iter())
        .filter(|a| a.state.load(Ordering::Acquire) != FREE)
}

/// Whether any bytes are not where the program thinks.
#[inline]
pub fn anything_moved() -> bool {
    areas().any(|a| {
        matches!(
            a.state.load(Ordering::Acquire),
            APPLYING | ACTIVE | ROLLING_BACK
        )
    })
}

/// The program has confined itself.
static CONFINED: AtomicBool = AtomicBool::new(false);

/// The program confines itself: what it may not call the kernel for, nothing of ours may either.
/// What is still needed does without from here on.
pub fn confine() {
    CONFINED.store(true, Ordering::SeqCst);
}

/// See [`confine`].
pub fn is_confined() -> bool {
    CONFINED.load(Ordering::Acquire)
}

/// How often something was moved.
static MOVES: AtomicU32 = AtomicU32::new(0);

/// How often moving has begun: what was put back is where it was for as long as this
/// stays the same.
pub fn moves() -> u32 {
    MOVES.load(Ordering::SeqCst)
}

/// Moving begins.
pub fn count_move() {
    MOVES.fetch_add(1, Ordering::SeqCst);
}

/// Held by tests that count moves, or move something.
#[cfg(test)]
pub static COUNTING: std::sync::Mutex<()> = std::sync::Mutex::new(());

/// While it lives nothing is moved: whoever moves says so in the area's state and then
/// looks for holds, and a hold is counted before the states are looked at. No lock,
/// since handlers of the program may interrupt its taking and need one of their own.
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

/// One that was forgotten ends.
pub fn end_hold() {
    HOLDS.fetch_sub(1, Ordering::SeqCst);
}

/// Waits for those that have begun to move.
fn await_moves() {
    for area in control().into_iter().flat_map(|c| c.areas.iter()) {
        while area.state.load(Ordering::SeqCst) == APPLYING {
            wait(&area.state, APPLYING, 10_000_000);
        }
    }
}

/// Whether something keeps areas from being moved.
pub fn is_held() -> bool {
    HOLDS.load(Ordering::SeqCst) != 0
}

/// From now on nothing is moved any more.
pub fn withdraw() {
    if let Some(control) = control() {
        control.ready.store(WITHDRAWN, Ordering::SeqCst);
        await_moves();
    }
}

/// Memory that calls in progress may reach, so that nothing there is moved under
/// them. A place is free when its end is 0.
mod in_use {
    use core::sync::atomic::AtomicU64;
    use core::sync::atomic::Ordering::SeqCst;

    const PLACES: usize = 64;

    static START: [AtomicU64; PLACES] = [const { AtomicU64::new(0) }; PLACES];
    static END: [AtomicU64; PLACES] = [const { AtomicU64::new(0) }; PLACES];
    /// Calls that found no place.
    static OTHERS: AtomicU64 = AtomicU64::new(0);

    pub fn begin(start: u64, len: u64) -> usize {
        // Taken with everything, then narrowed.
        let free = |e: &AtomicU64| e.compare_exchange(0, u64::MAX, SeqCst, SeqCst).is_ok();
        let Some(place) = END.iter().position(free) else {
            OTHERS.fetch_add(1, SeqCst);
            return PLACES;
        };
        if let (Some(from), Some(to)) = (START.get(place), END.get(place)) {
            from.store(start, SeqCst);
            to.store(start.saturating_add(len).max(1), SeqCst);
        }
        place
    }

    pub fn end(place: usize) {
        match (START.get(place), END.get(place)) {
            (Some(from), Some(to)) => {
                from.store(0, SeqCst);
                to.store(0, SeqCst);
            }
            _ => {
                OTHERS.fetch_sub(1, SeqCst);
            }
        }
    }

    pub fn any_in(start: u64, len: u64) -> bool {
        OTHERS.load(SeqCst) > 0
            || START.iter().zip(&END).any(|(from, to)| {
                let end = to.load(SeqCst);
                end != 0 && from.load(SeqCst) < start + len && start < end
            })
    }
}

pub use in_use::{any_in as is_in_use, begin as begin_use, end as end_use};
