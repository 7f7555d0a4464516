//! The control file, as this process has mapped it. Contexts: all.

use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering};
use sunder_guest::system::{self, Reach};
use sunder_wire::isolation::{
    Control, REGISTERS, Registers, SLOTS, Slot, THREAD_AREA, THREAD_AREAS_AT, VECTORS,
};

static CONTROL: AtomicPtr<Control> = AtomicPtr::new(core::ptr::null_mut());
static LIBRARY: [AtomicUsize; 2] = [AtomicUsize::new(0), AtomicUsize::new(0)];

/// The control file, if this process is the protected one.
#[inline]
pub fn get() -> Option<&'static Control> {
    // SAFETY: the pointer is null or that of a mapping that is never removed.
    unsafe { CONTROL.load(Ordering::Acquire).as_ref() }
}

/// Sets the control file; null in a forked child.
pub fn set(control: *mut Control) {
    CONTROL.store(control, Ordering::Release);
}

/// The addresses at which this library begins and ends.
pub fn library() -> [usize; 2] {
    let [start, end] = &LIBRARY;
    [start.load(Ordering::Relaxed), end.load(Ordering::Relaxed)]
}

/// Sets the addresses at which this library begins and ends.
pub fn set_library(from: usize, to: usize) {
    let [start, end] = &LIBRARY;
    start.store(from, Ordering::Relaxed);
    end.store(to, Ordering::Relaxed);
}

/// Whether the kernel accepted a system call; its error is kept in the control file.
pub fn accepted(result: isize) -> Option<()> {
    if result >= 0 {
        return Some(());
    }
    if let Some(control) = get() {
        control.error.store(result as i64, Ordering::Relaxed);
    }
    None
}

/// Waits while a word of the file has this `value`, at most so many microseconds. Spurious returns
/// are possible.
pub fn wait(word: &AtomicU32, value: u32, microseconds: u32) {
    let nanoseconds = u64::from(microseconds) * 1000;
    system::wait(word, value, Some(nanoseconds), Reach::All);
}

/// Wakes all threads that wait on a word of the file.
pub fn wake(word: &AtomicU32) {
    system::wake(word, i32::MAX, Reach::All);
}

/// The index of a slot in the file.
pub fn slot_index(control: &Control, slot: &Slot) -> usize {
    let first = control.slots.as_ptr() as usize;
    (&raw const *slot as usize).wrapping_sub(first) / size_of::<Slot>()
}

/// The address of a slot's thread area ([`THREAD_AREA`] bytes): the thread's registers and its stack
/// while it is isolated, and its worker's stacks.
pub fn thread_area(control: &Control, slot: &Slot) -> Option<usize> {
    let index = slot_index(control, slot);
    (index < SLOTS).then(|| &raw const *control as usize + THREAD_AREAS_AT + index * THREAD_AREA)
}

/// The registers in a thread area.
pub fn registers(area: usize) -> *const Registers {
    (area + REGISTERS) as *const Registers
}

/// The vector state in a thread area.
pub fn vectors(area: usize) -> usize {
    area + VECTORS
}
