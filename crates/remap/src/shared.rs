//! The memory that the tool reads and writes, and whether it is used at all.
//! Contexts: all.

use crate::kernel;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use sunder_wire::remap::{ACTIVE, APPLYING, Area, Control, FREE, ROLLING_BACK, WITHDRAWN};

static CONTROL: AtomicPtr<Control> = AtomicPtr::new(null_mut());
/// What keeps areas from being moved: calls in progress that make processes.
static HOLDS: AtomicU32 = AtomicU32::new(0);
/// Held while an area is moved or [`HOLDS`] changes.
static LOCK: AtomicU32 = AtomicU32::new(0);

/// What the tool wrote; none before the constructor and in forked children.
#[inline]
pub fn control() -> Option<&'static Control> {
    // SAFETY: null, or a mapping of the whole file that stays.
    unsafe { CONTROL.load(Ordering::Acquire).as_ref() }
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

/// While it lives nothing is moved.
pub struct Hold(());

impl Hold {
    pub fn new() -> Self {
        let locked = Lock::take();
        HOLDS.fetch_add(1, Ordering::AcqRel);
        drop(locked);
        Self(())
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        HOLDS.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Whether something keeps areas from being moved.
pub fn is_held() -> bool {
    HOLDS.load(Ordering::Acquire) != 0
}

/// From now on nothing is moved any more.
pub fn withdraw() {
    if let Some(control) = control() {
        let locked = Lock::take();
        control.ready.store(WITHDRAWN, Ordering::Release);
        drop(locked);
    }
}

/// Taken with all signals blocked, or by code that no handler of ours interrupts
/// for long: whoever moves an area does.
pub struct Lock(());

impl Lock {
    pub fn take() -> Self {
        while LOCK
            .compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed)
            .is_err()
        {
            kernel::pause();
        }
        Self(())
    }

    /// None if it is taken.
    pub fn try_take() -> Option<Self> {
        LOCK.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed)
            .ok()
            .map(|_| Self(()))
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        LOCK.store(0, Ordering::Release);
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
