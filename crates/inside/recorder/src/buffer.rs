//! A thread's buffer: slots, a cursor that is stored where the recorder's hooks reach it fastest,
//! and the call stacks that this thread saw first. Contexts: all.
//!
//! The owner writes slots without any lock. The thread that empties the buffer holds it meanwhile:
//! the owner when it is full, or the thread that ends the recording. The owner may continue to
//! write behind the slots that are being packed, but not start over at the beginning.

use crate::memory::map;
use crate::stacks::MOST_FRAMES;
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};
use sunder_guest::system;
use sunder_trace::SLOTS;
use sunder_trace::meta::write_stack;
use sunder_trace::slot::Slot;

/// The cursor: the address of the thread's next slot, or null if the thread is not recorded. At a
/// multiple of [`PAGE_SLOTS`] slots, [`crate::Recorder::turn_page`] must be called first.
pub type Cursor = AtomicPtr<Slot>;

/// Slots from one stamp to the next, with the stamp: a page of memory.
pub const PAGE_SLOTS: usize = 256;

const SLOT_BYTES: usize = SLOTS * size_of::<Slot>();

/// Bytes for call stacks that are not written yet: room for at least one of any size.
const DEFINED: usize = 16 << 10;
const _: () = assert!(DEFINED >= MOST_FRAMES * 8 + 8);
const _: () = assert!(SLOT_BYTES.is_power_of_two());

/// A buffer. It follows its slots in memory, which is zeroed in a forked child.
#[repr(C)]
#[derive(Debug)]
pub struct Buffer {
    slots: AtomicPtr<Slot>,
    /// The thread's [`Cursor`]; null while no thread has the buffer.
    threads_cursor: AtomicPtr<Cursor>,
    next: AtomicPtr<Buffer>,
    taken: AtomicBool,
    held: AtomicBool,
    thread: AtomicU32,
    tid: AtomicU32,
    process: AtomicU32,
    sequence: AtomicU32,
    extra: AtomicPtr<u8>,
    defined: UnsafeCell<Defined>,
}

#[repr(C)]
#[derive(Debug)]
struct Defined {
    bytes: usize,
    count: u32,
    memory: [u8; DEFINED],
}

// SAFETY: only the thread that holds the buffer uses `defined`.
unsafe impl Sync for Buffer {}

/// A held buffer, until dropped.
#[derive(Debug)]
pub struct Held<'a>(&'a Buffer);

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.held.store(false, Ordering::Release);
    }
}

impl Buffer {
    /// A free buffer, from the list or new.
    pub(super) fn take(list: &AtomicPtr<Self>) -> Option<&'static Self> {
        let mut next = list.load(Ordering::Acquire);
        // SAFETY: buffers in the list are never unmapped.
        while let Some(buffer) = unsafe { next.as_ref() } {
            if !buffer.taken.swap(true, Ordering::Acquire) {
                return Some(buffer);
            }
            next = buffer.next();
        }
        let memory = map(SLOT_BYTES + size_of::<Self>(), SLOT_BYTES)?;
        // SAFETY: the mapping has room for both, zeroes are a valid buffer, and no other thread
        // knows it yet.
        let buffer = unsafe { &*memory.as_ptr().add(SLOT_BYTES).cast::<Self>() };
        buffer
            .slots
            .store(memory.as_ptr().cast(), Ordering::Relaxed);
        buffer.taken.store(true, Ordering::Relaxed);
        let mut head = list.load(Ordering::Relaxed);
        loop {
            buffer.next.store(head, Ordering::Relaxed);
            let own = core::ptr::from_ref(buffer).cast_mut();
            match list.compare_exchange_weak(head, own, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return Some(buffer),
                Err(now) => head = now,
            }
        }
    }

    /// Gives the buffer to a thread.
    ///
    /// # Safety
    /// The buffer was just taken; `cursor` as [`crate::Recorder::attach`] demands.
    pub(super) unsafe fn begin(&self, cursor: *const Cursor, thread: u32, tid: u32, process: u32) {
        let _held = self.hold();
        self.thread.store(thread, Ordering::Relaxed);
        self.tid.store(tid, Ordering::Relaxed);
        self.process.store(process, Ordering::Relaxed);
        self.sequence.store(0, Ordering::Relaxed);
        self.threads_cursor
            .store(cursor.cast_mut(), Ordering::Relaxed);
        self.set_cursor(self.first_slot());
    }

    /// Frees the buffer for another thread. The caller holds it.
    pub(super) fn end(&self) {
        self.stop();
        self.threads_cursor
            .store(core::ptr::null_mut(), Ordering::Relaxed);
        self.taken.store(false, Ordering::Release);
    }

    /// Waits until no other thread empties the buffer. Only with signals blocked: a signal handler
    /// that interrupted the holder would wait for ever.
    pub(super) fn hold(&self) -> Held<'_> {
        while self.held.swap(true, Ordering::Acquire) {
            system::give_way();
        }
        Held(self)
    }

    #[inline]
    fn threads_cursor(&self) -> Option<&Cursor> {
        // SAFETY: valid while it is set, by `Recorder::attach`'s contract.
        unsafe { self.threads_cursor.load(Ordering::Relaxed).as_ref() }
    }

    /// The address of the next slot; null if the thread is not recorded.
    #[inline]
    pub fn cursor(&self) -> *mut Slot {
        self.threads_cursor()
            .map_or(core::ptr::null_mut(), |p| p.load(Ordering::Acquire))
    }

    /// Sets the cursor, after the slot before it was written.
    #[inline]
    pub fn set_cursor(&self, cursor: *mut Slot) {
        if let Some(own) = self.threads_cursor() {
            own.store(cursor, Ordering::Release);
        }
    }

    /// Ends the recording of the thread.
    pub(super) fn stop(&self) {
        self.set_cursor(core::ptr::null_mut());
    }

    pub(super) fn first_slot(&self) -> *mut Slot {
        self.slots.load(Ordering::Relaxed)
    }

    pub(super) fn is_full(&self, cursor: *mut Slot) -> bool {
        cursor as usize >= self.first_slot() as usize + SLOT_BYTES
    }

    /// The slots written so far. The caller holds the buffer.
    pub(super) fn filled(&self) -> Option<&[Slot]> {
        let start = self.first_slot();
        let bytes = (self.cursor() as usize).checked_sub(start as usize)?;
        let count = (bytes / size_of::<Slot>()).min(SLOTS);
        // SAFETY: the owner has written these and, while the buffer is held, writes only behind
        // them.
        Some(unsafe { core::slice::from_raw_parts(start, count) })
    }

    /// Zeroes the slots. A hook that a signal interrupted before it stored its cursor may set the
    /// cursor back to before the handler filled and emptied the buffer; the slots below are then
    /// empty, not old.
    pub(super) fn empty(&self) {
        if let Some(count) = self.filled().map(<[Slot]>::len) {
            // SAFETY: as in `filled`; no reference to the slots exists.
            unsafe { core::ptr::write_bytes(self.first_slot(), 0, count) };
        }
    }

    /// The thread's index in the trace.
    pub fn thread(&self) -> u32 {
        self.thread.load(Ordering::Relaxed)
    }

    /// Memory that the recorder's user has attached to the buffer. It stays for the next thread
    /// that gets the buffer. Null at first.
    pub fn extra(&self) -> *mut u8 {
        self.extra.load(Ordering::Relaxed)
    }

    /// See [`Buffer::extra`].
    pub fn set_extra(&self, memory: *mut u8) {
        self.extra.store(memory, Ordering::Relaxed);
    }

    pub(super) fn tid(&self) -> u32 {
        self.tid.load(Ordering::Relaxed)
    }

    pub(super) fn next_sequence(&self) -> u32 {
        self.sequence.fetch_add(1, Ordering::Relaxed)
    }

    pub(super) fn next(&self) -> *mut Self {
        self.next.load(Ordering::Acquire)
    }

    /// Keeps a new call stack until the next flush; false if there is no room. The caller holds the
    /// buffer.
    pub(super) fn define(&self, id: u32, frames: &[u64]) -> bool {
        // SAFETY: the caller holds the buffer.
        let defined = unsafe { &mut *self.defined.get() };
        let room = defined.memory.get_mut(defined.bytes..);
        let Some(bytes) = write_stack(room.unwrap_or_default(), id, frames) else {
            return false;
        };
        defined.bytes += bytes;
        defined.count += 1;
        true
    }

    /// The kept call stacks. The caller holds the buffer.
    pub(super) fn defined(&self) -> Option<(&[u8], u32)> {
        // SAFETY: the caller holds the buffer.
        let defined = unsafe { &*self.defined.get() };
        let bytes = defined.memory.get(..defined.bytes)?;
        (defined.count > 0).then_some((bytes, defined.count))
    }

    /// Drops the kept call stacks.
    pub(super) fn forget_defined(&self) {
        // SAFETY: the caller holds the buffer, and the slice of `defined` is not used any more.
        unsafe {
            (*self.defined.get()).bytes = 0;
            (*self.defined.get()).count = 0;
        }
    }
}
