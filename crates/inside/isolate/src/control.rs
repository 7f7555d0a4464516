//! The control file, as this process has mapped it. Contexts: all.

use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering};
use sunder_guest::system::{self, Reach};
use sunder_wire::isolation::{
    Control, REGISTERS, Registers, SLOTS, SUITCASE, SUITCASES_AT, Slot, VECTORS,
};

static CONTROL: AtomicPtr<Control> = AtomicPtr::new(core::ptr::null_mut());
static LIBRARY: [AtomicUsize; 2] = [AtomicUsize::new(0), AtomicUsize::new(0)];

/// The control file, if this process is the one that is protected.
#[inline]
pub fn get() -> Option<&'static Control> {
    // SAFETY: null, or a mapping that is never undone.
    unsafe { CONTROL.load(Ordering::Acquire).as_ref() }
}

/// Keeps it, or forgets it (in a child).
pub fn set(control: *mut Control) {
    CONTROL.store(control, Ordering::Release);
}

/// Where this library lies.
pub fn library() -> [usize; 2] {
    let [start, end] = &LIBRARY;
    [start.load(Ordering::Relaxed), end.load(Ordering::Relaxed)]
}

/// Keeps where this library lies.
pub fn set_library(from: usize, to: usize) {
    let [start, end] = &LIBRARY;
    start.store(from, Ordering::Relaxed);
    end.store(to, Ordering::Relaxed);
}

/// Waits while a word of the file is `value`, at most so many microseconds; may come back for
/// no reason.
pub fn wait(word: &AtomicU32, value: u32, microseconds: u32) {
    let nanoseconds = u64::from(microseconds) * 1000;
    system::wait(word, value, Some(nanoseconds), Reach::All);
}

/// Wakes all that wait on a word of the file.
pub fn wake(word: &AtomicU32) {
    system::wake(word, i32::MAX, Reach::All);
}

/// Which slot of the file it is.
pub fn place(control: &Control, slot: &Slot) -> usize {
    let first = control.slots.as_ptr() as usize;
    (&raw const *slot as usize).wrapping_sub(first) / size_of::<Slot>()
}

/// The suitcase of a slot: its address.
pub fn suitcase(control: &Control, slot: &Slot) -> Option<usize> {
    let index = place(control, slot);
    (index < SLOTS).then(|| &raw const *control as usize + SUITCASES_AT + index * SUITCASE)
}

/// The registers in a suitcase.
pub fn registers(suitcase: usize) -> *const Registers {
    (suitcase + REGISTERS) as *const Registers
}

/// The vector state in a suitcase.
pub fn vectors(suitcase: usize) -> usize {
    suitcase + VECTORS
}
