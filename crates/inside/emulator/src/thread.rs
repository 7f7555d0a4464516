//! The data of each emulated processor, which runs one thread of the program at a time: the cursor
//! of its buffer and its call stack. The emulator numbers processors, and reuses a number after its
//! thread has ended. Contexts: normal, on the thread of the emulated processor; `stop_all`
//! post-fork.

use crate::RECORDER;
use crate::calls::Calls;
use crate::modules;
use core::cell::Cell;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};
use sunder_recorder::{Buffer, Cursor, PAGE_SLOTS};
use sunder_trace::slot::{Key, Slot, tag};

/// The most threads that can be recorded at once.
const MOST: usize = 8192;

/// Size of glibc's thread descriptor, at the end of a thread's stack, in bytes.
const DESCRIPTOR: u64 = 2304;

/// Bytes between two cursors at which room must be made.
const PAGE: usize = PAGE_SLOTS * size_of::<Slot>();

/// One processor. Only its own thread uses it.
#[repr(align(64))]
pub struct Thread {
    cursor: Cursor,
    buffer: AtomicPtr<Buffer>,
    calls: AtomicPtr<Calls>,
    /// The index of the thread that created this one.
    parent: AtomicU32,
    /// The index that its creator reserved for it, or 0.
    reserved: AtomicU32,
    /// Set when it must not be recorded any more.
    over: AtomicBool,
}

static THREADS: [Thread; MOST] = [const {
    Thread {
        cursor: AtomicPtr::new(null_mut()),
        buffer: AtomicPtr::new(null_mut()),
        calls: AtomicPtr::new(null_mut()),
        parent: AtomicU32::new(0),
        reserved: AtomicU32::new(0),
        over: AtomicBool::new(false),
    }
}; MOST];

thread_local! {
    /// The index of the calling thread in the trace, while it is recorded.
    static INDEX: Cell<u32> = const { Cell::new(0) };
    /// The index of the thread that the calling thread is about to create, or 0.
    static CREATING: Cell<u32> = const { Cell::new(0) };
}

/// The processor with this number; `None` if the number is too large.
#[inline]
pub fn of(processor: u32) -> Option<&'static Thread> {
    THREADS.get(processor as usize)
}

/// The calling thread has made a processor.
pub fn made(processor: u32) {
    if let Some(thread) = of(processor) {
        thread.parent.store(INDEX.get(), Ordering::Relaxed);
        thread.reserved.store(CREATING.take(), Ordering::Relaxed);
        thread.over.store(false, Ordering::Relaxed);
    }
}

/// The calling thread is about to create another; gives that one's index in the trace.
pub fn creates() -> u32 {
    let index = RECORDER.reserve();
    CREATING.set(index);
    index
}

/// A processor's thread ends.
pub fn ended(processor: u32) {
    let Some(thread) = of(processor) else {
        return;
    };
    if let Some(buffer) = thread.recorded() {
        // SAFETY: the calling thread's buffer, which is not used after this.
        unsafe { RECORDER.detach(buffer) };
    }
    thread.stop();
    INDEX.set(0);
}

/// In a forked child: no thread is recorded any more.
pub fn stop_all() {
    for thread in &THREADS {
        thread.stop();
    }
}

impl Thread {
    fn stop(&self) {
        self.over.store(true, Ordering::Relaxed);
        self.cursor.store(null_mut(), Ordering::Relaxed);
        self.buffer.store(null_mut(), Ordering::Relaxed);
        self.calls.store(null_mut(), Ordering::Relaxed);
    }

    /// Its buffer, if it is recorded.
    #[inline]
    pub fn recorded(&self) -> Option<&'static Buffer> {
        // SAFETY: buffers are never unmapped.
        unsafe { self.buffer.load(Ordering::Relaxed).as_ref() }
    }

    /// Its buffer; it gets one now if it has none.
    pub fn buffer(&self) -> Option<&'static Buffer> {
        if self.cursor.load(Ordering::Relaxed).is_null() {
            self.attach();
        }
        self.recorded()
    }

    /// Its call stack, if it is recorded.
    #[inline]
    #[expect(
        clippy::mut_from_ref,
        reason = "only callbacks of this thread use it, one at a time"
    )]
    pub fn calls(&self) -> Option<&mut Calls> {
        // SAFETY: the memory belongs to the buffer, which belongs to this thread; only callbacks of
        // this thread use it, one at a time.
        unsafe { self.calls.load(Ordering::Relaxed).as_mut() }
    }

    /// Records a slot.
    #[inline]
    pub fn push(&self, slot: Slot) {
        let cursor = self.cursor.load(Ordering::Relaxed);
        if cursor as usize & (PAGE - 1) == 0 {
            return self.push_on_new_page(slot);
        }
        // SAFETY: a cursor that is not at a page border has room for a slot.
        unsafe {
            cursor.write(slot);
            self.cursor.store(cursor.add(1), Ordering::Release);
        }
    }

    #[cold]
    #[inline(never)]
    fn push_on_new_page(&self, slot: Slot) {
        let cursor = self.make_room(self.cursor.load(Ordering::Relaxed));
        if !cursor.is_null() {
            // SAFETY: there is room now.
            unsafe {
                cursor.write(slot);
                self.cursor.store(cursor.add(1), Ordering::Release);
            }
        }
    }

    /// The slot that was written so many slots ago, counted from 1; `None` if it may lie on an
    /// earlier page than the last slot.
    #[inline]
    #[expect(
        clippy::mut_from_ref,
        reason = "only callbacks of this thread use it, one at a time"
    )]
    pub fn last(&self, back: usize) -> Option<&mut Slot> {
        let cursor = self.cursor.load(Ordering::Relaxed);
        // The first page begins with a stamp and the start of the thread; every other page begins
        // with a stamp.
        if (cursor.addr().wrapping_sub(1) & (PAGE - 1)) < back * size_of::<Slot>() - 1 {
            return None;
        }
        // SAFETY: the slot is in the page of the cursor, or in the page that ends there.
        (!cursor.is_null()).then(|| unsafe { &mut *cursor.sub(back) })
    }

    /// Records the bounds of the thread's stack; `first` is the slot of its first call's return
    /// address, near the end.
    #[cold]
    #[inline(never)]
    pub fn record_stack(&self, first: u64) {
        let Some((start, mut end)) = modules::mapping_at(first) else {
            return;
        };
        if self.parent.load(Ordering::Relaxed) != 0 {
            // The thread's descriptor and variables lie above it; memory after these may be another
            // mapping.
            let own = first
                .saturating_add(DESCRIPTOR)
                .next_multiple_of(sunder_access::PAGE);
            end = end.min(own);
        }
        self.push(Slot::new(start, Key::new(tag::STACK, 0, end - start)));
    }

    /// Records the stack frames in which the thread is about to create another.
    pub fn record_frames(&self) {
        if let Some(calls) = self.calls() {
            calls.waiting(|pointer, returns| {
                self.push(Slot::new(pointer, Key::new(tag::FRAME, 0, returns)));
            });
        }
    }

    fn make_room(&self, cursor: *mut Slot) -> *mut Slot {
        if cursor.is_null() {
            self.attach();
            return self.cursor.load(Ordering::Relaxed);
        }
        let next = match self.recorded() {
            // SAFETY: this thread's buffer and cursor.
            Some(buffer) => unsafe { RECORDER.turn_page(buffer, cursor) },
            None => null_mut(),
        };
        if next.is_null() {
            self.stop();
        }
        next
    }

    fn attach(&self) {
        if self.over.load(Ordering::Relaxed) {
            return;
        }
        let parent = self.parent.load(Ordering::Relaxed);
        let reserved = self.reserved.load(Ordering::Relaxed);
        // SAFETY: the cursor is static and used by one thread at a time.
        let buffer = unsafe { RECORDER.attach(&raw const self.cursor, parent, reserved) };
        let Some(buffer) = buffer else {
            return self.stop();
        };
        self.buffer
            .store(core::ptr::from_ref(buffer).cast_mut(), Ordering::Relaxed);
        INDEX.set(buffer.thread());
        if buffer.extra().is_null()
            && let Some(memory) = sunder_recorder::map(size_of::<Calls>(), sunder_access::PAGE_SIZE)
        {
            buffer.set_extra(memory.as_ptr());
        }
        self.calls.store(buffer.extra().cast(), Ordering::Relaxed);
        if let Some(calls) = self.calls() {
            calls.forget();
        }
    }
}
