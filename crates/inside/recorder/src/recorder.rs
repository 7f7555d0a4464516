//! A recording: what the recorders call while the program runs. Contexts: all.

use crate::buffer::{Buffer, Cursor, PAGE_SLOTS};
use crate::file::File;
use crate::pool::Pool;
use crate::refusal::Refusal;
use crate::stacks::{self, MOST_FRAMES, Stacks};
use crate::start::{self, Start};
use crate::ticks::{self, Ticks};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};
use sunder_guest::system::{self, NoSignals};
use sunder_trace::Of;
use sunder_trace::block::{BlockHeader, Kind};
use sunder_trace::meta::{Clock, End, ModuleWriter, Progress, Reason, State};
use sunder_trace::slot::{Key, Slot, tag};

const IDLE: u32 = 0;
const STARTING: u32 = 1;
const RECORDING: u32 = 2;
const ENDED: u32 = 3;
const FAILED: u32 = 4;
const CONTINUED: u32 = 5;

/// A recording. A process has one, as a static value.
#[derive(Debug)]
pub struct Recorder {
    state: AtomicU32,
    process: AtomicU32,
    tsc: AtomicBool,
    file: File,
    pool: Pool,
    stacks: Stacks,
    buffers: AtomicPtr<Buffer>,
    threads: AtomicU32,
    blocks: AtomicU64,
    accesses: AtomicU64,
    others: AtomicU64,
    lost: AtomicU64,
    errno: AtomicU32,
    progress: AtomicBool,
    /// The function that was passed to [`Recorder::before_blocks`], or null.
    before_block: AtomicPtr<()>,
}

impl Default for Recorder {
    fn default() -> Self {
        Self::new()
    }
}

impl Recorder {
    /// A recorder that does not record yet.
    pub const fn new() -> Self {
        Self {
            state: AtomicU32::new(IDLE),
            process: AtomicU32::new(0),
            tsc: AtomicBool::new(false),
            file: File::new(),
            pool: Pool::new(),
            stacks: Stacks::new(),
            buffers: AtomicPtr::new(core::ptr::null_mut()),
            threads: AtomicU32::new(0),
            blocks: AtomicU64::new(0),
            accesses: AtomicU64::new(0),
            others: AtomicU64::new(0),
            lost: AtomicU64::new(0),
            errno: AtomicU32::new(0),
            progress: AtomicBool::new(false),
            before_block: AtomicPtr::new(core::ptr::null_mut()),
        }
    }

    /// From here on `call` is called before a thread writes its slots, so that it can write what
    /// these events need first ([`Recorder::modules`]). It runs in every context in which slots are
    /// written, and must write none itself.
    pub fn before_blocks(&self, call: fn()) {
        self.before_block.store(call as *mut (), Ordering::Release);
    }

    fn call_before_block(&self) {
        let call = self.before_block.load(Ordering::Acquire);
        if !call.is_null() {
            // SAFETY: `before_blocks` stored a function of this type.
            let call: fn() = unsafe { core::mem::transmute(call) };
            call();
        }
    }

    /// Begins to record. Threads are recorded from [`Recorder::attach`] on.
    ///
    /// # Errors
    /// See [`Refusal`]; nothing was changed then but, at most, a new empty file.
    pub fn start(&self, start: &Start<'_>) -> Result<(), Refusal> {
        self.state
            .compare_exchange(IDLE, STARTING, Ordering::AcqRel, Ordering::Relaxed)
            .map_err(|_| Refusal::Twice)?;
        let begun = self.begin(start);
        let state = if begun.is_ok() { RECORDING } else { IDLE };
        self.state.store(state, Ordering::Release);
        begun
    }

    fn begin(&self, start: &Start<'_>) -> Result<(), Refusal> {
        let clock = ticks::clock_of_this_machine();
        self.tsc.store(clock == Clock::Tsc, Ordering::Relaxed);
        self.process.store(system::process_id(), Ordering::Relaxed);
        if !self.stacks.prepare() || !self.pool.prepare() {
            return Err(Refusal::Memory);
        }
        self.file.open(start.path)?;
        start::write_header(&self.file, start, clock)
    }

    /// Whether it records now.
    #[inline]
    pub fn is_recording(&self) -> bool {
        self.state.load(Ordering::Acquire) == RECORDING
    }

    /// Whether the calling process is the one that started the recording, not a child of it.
    pub fn is_own_process(&self) -> bool {
        self.process.load(Ordering::Relaxed) == system::process_id()
    }

    /// The clock of its ticks.
    #[inline]
    pub fn clock(&self) -> Clock {
        if self.tsc.load(Ordering::Relaxed) {
            Clock::Tsc
        } else {
            Clock::Monotonic
        }
    }

    /// The index of a thread that is about to be created. Threads are numbered so in the order of
    /// their creation, whichever of them gets a processor first.
    pub fn reserve(&self) -> u32 {
        self.threads.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Begins to record the thread whose cursor is `cursor`; `parent` is the index of its creator
    /// or 0, and `reserved` the index that its creator reserved for it, or 0. Sets the cursor.
    /// `None` if nothing is recorded or there is no memory.
    ///
    /// # Safety
    /// `cursor` stays valid until [`Recorder::detach`] or, if that is never
    /// called, as long as the process lives. It is used by one thread at a time.
    pub unsafe fn attach(
        &self,
        cursor: *const Cursor,
        parent: u32,
        reserved: u32,
    ) -> Option<&Buffer> {
        if !self.is_recording() {
            return None;
        }
        let _signals = NoSignals::hold();
        let Some(buffer) = Buffer::take(&self.buffers) else {
            self.lost.fetch_add(1, Ordering::Relaxed);
            return None;
        };
        let tid = system::thread_id();
        let thread = match reserved {
            0 => self.reserve(),
            reserved => reserved,
        };
        // SAFETY: by this function's contract, and the buffer was just taken.
        unsafe { buffer.begin(cursor, thread, tid, system::process_id()) };
        // SAFETY: the buffer now belongs to the calling thread.
        unsafe {
            self.push_after(
                buffer,
                Slot::new(
                    u64::from(parent),
                    Key::new(tag::THREAD_START, 0, u64::from(tid)),
                ),
            );
        }
        Some(buffer)
    }

    /// Ends the recording of the calling thread and frees its buffer. Its cursor is null
    /// afterwards.
    ///
    /// # Safety
    /// `buffer` belongs to the calling thread and is not used after this.
    pub unsafe fn detach(&self, buffer: &Buffer) {
        // SAFETY: by this function's contract.
        unsafe {
            self.push_before(buffer, Slot::new(0, Key::new(tag::THREAD_END, 0, 0)));
        }
        self.call_before_block();
        let _signals = NoSignals::hold();
        let _held = buffer.hold();
        self.flush(buffer);
        buffer.end();
    }

    /// Makes room for more slots. Called with a cursor at a page border, before a slot is written
    /// there. Flushes a full buffer, writes a stamp, and returns the new cursor, which the caller
    /// must store after it wrote its slot; null, to be stored at once, if nothing is recorded any
    /// more.
    ///
    /// # Safety
    /// `buffer` belongs to the calling thread, and `cursor` is its cursor.
    pub unsafe fn turn_page(&self, buffer: &Buffer, mut cursor: *mut Slot) -> *mut Slot {
        // The memory was wiped: this is a forked child for which [`Recorder::forked`] was not
        // called.
        if !self.is_recording() || buffer.first_slot().is_null() {
            buffer.stop();
            return core::ptr::null_mut();
        }
        if buffer.is_full(cursor) {
            self.call_before_block();
            let _signals = NoSignals::hold();
            let _held = buffer.hold();
            self.flush(buffer);
            cursor = buffer.first_slot();
            buffer.set_cursor(cursor);
            if !self.is_recording() {
                buffer.stop();
                return core::ptr::null_mut();
            }
        }
        // SAFETY: the cursor is at the start of a page of the buffer.
        unsafe {
            cursor.write(Slot::stamp(self.clock().before()));
            cursor.add(1)
        }
    }

    /// Records a slot.
    ///
    /// # Safety
    /// `buffer` belongs to the calling thread.
    #[inline]
    pub unsafe fn push(&self, buffer: &Buffer, slot: Slot) {
        let mut cursor = buffer.cursor();
        if cursor as usize & (PAGE_SLOTS * size_of::<Slot>() - 1) == 0 {
            if cursor.is_null() {
                return;
            }
            // SAFETY: by this function's contract.
            cursor = unsafe { self.turn_page(buffer, cursor) };
            if cursor.is_null() {
                return;
            }
        }
        // SAFETY: a cursor that is not at a page border has room for a slot.
        unsafe {
            cursor.write(slot);
            buffer.set_cursor(cursor.add(1));
        }
    }

    /// Makes room so that the next `slots` slots are written without a call of
    /// [`Recorder::turn_page`].
    ///
    /// # Safety
    /// As [`Recorder::push`].
    pub unsafe fn make_room(&self, buffer: &Buffer, slots: usize) {
        const PAGE: usize = PAGE_SLOTS * size_of::<Slot>();
        let cursor = buffer.cursor();
        let used = cursor as usize % PAGE;
        if cursor.is_null() || used != 0 && used + slots * size_of::<Slot>() <= PAGE {
            return;
        }
        // The rest of the page stays empty.
        let border = (cursor as usize).next_multiple_of(PAGE) - cursor as usize;
        // SAFETY: a page border lies within the buffer or at its end; the rest by this function's
        // contract.
        unsafe {
            let cursor = self.turn_page(buffer, cursor.byte_add(border));
            buffer.set_cursor(cursor);
        }
    }

    /// Records a release before it happens: a stamp, then the slot.
    ///
    /// # Safety
    /// As [`Recorder::push`].
    pub unsafe fn push_before(&self, buffer: &Buffer, slot: Slot) {
        // SAFETY: by this function's contract.
        unsafe {
            self.push(buffer, Slot::stamp(self.clock().before()));
            self.push(buffer, slot);
        }
    }

    /// Records an acquire after it happened: a stamp, then the slot.
    ///
    /// # Safety
    /// As [`Recorder::push`].
    pub unsafe fn push_after(&self, buffer: &Buffer, slot: Slot) {
        // SAFETY: by this function's contract.
        unsafe {
            self.push(buffer, Slot::stamp(self.clock().after()));
            self.push(buffer, slot);
        }
    }

    /// The number of the call stack with these return addresses, the innermost
    /// first; 0 for an empty one or if there is no room.
    ///
    /// # Safety
    /// As [`Recorder::push`].
    pub unsafe fn stack(&self, buffer: &Buffer, frames: &[u64]) -> u32 {
        let frames = frames.get(..MOST_FRAMES).unwrap_or(frames);
        match self.stacks.intern(frames) {
            stacks::Found::Known(id) => id,
            stacks::Found::None => 0,
            stacks::Found::New(id) => {
                let _signals = NoSignals::hold();
                let _held = buffer.hold();
                if !buffer.define(id, frames) {
                    self.write_stacks(buffer);
                    // After the flush there is room for any stack.
                    buffer.define(id, frames);
                }
                id
            }
        }
    }

    /// Writes the list of loaded files, which is valid for the blocks that follow. `fill` gets the
    /// writer.
    pub fn modules(&self, fill: impl FnOnce(&mut ModuleWriter<'_>)) {
        if !self.is_recording() {
            return;
        }
        let _signals = NoSignals::hold();
        let Some(mut encoder) = self.pool.take() else {
            return;
        };
        let memory = encoder.scratch();
        let mut writer = ModuleWriter::new(memory);
        fill(&mut writer);
        let (bytes, count) = writer.done();
        let now = self.clock().before();
        let header = BlockHeader {
            first: now,
            last: now,
            clock: system::clock(libc::CLOCK_MONOTONIC),
            ..BlockHeader::plain(Kind::Modules, bytes as u32, count)
        };
        let payload = memory.get(..bytes).unwrap_or_default();
        self.append(&[&header.encoded(payload), payload]);
    }

    /// Ends the recording: writes the slots of all threads, and the totals. Threads that continue
    /// are not recorded any more. Does nothing in a process other than the one that started the
    /// recording, or if it has ended already.
    pub fn finish(&self, reason: Reason) {
        let mine = self.process.load(Ordering::Relaxed) == system::process_id();
        if !mine
            || self
                .state
                .compare_exchange(RECORDING, ENDED, Ordering::AcqRel, Ordering::Relaxed)
                .is_err()
        {
            return;
        }
        let _signals = NoSignals::hold();
        let mut next = self.buffers.load(Ordering::Acquire);
        // SAFETY: buffers are never unmapped.
        while let Some(buffer) = unsafe { next.as_ref() } {
            let _held = buffer.hold();
            self.flush(buffer);
            next = buffer.next();
        }
        let end = End {
            reason,
            threads: self.threads.load(Ordering::Relaxed),
            blocks: self.blocks.load(Ordering::Relaxed),
            accesses: self.accesses.load(Ordering::Relaxed),
            others: self.others.load(Ordering::Relaxed),
            lost: self.lost.load(Ordering::Relaxed),
            ticks: self.clock().after(),
            monotonic: system::clock(libc::CLOCK_MONOTONIC),
        };
        let payload = end.to_bytes();
        let header = BlockHeader {
            first: end.ticks,
            last: end.ticks,
            clock: end.monotonic,
            ..BlockHeader::plain(Kind::End, payload.len() as u32, 1)
        };
        self.append(&[&header.encoded(&payload), &payload]);
        self.write_progress(true);
    }

    /// For an exec that failed after [`Recorder::finish`], with the system's error number: writes
    /// that the program continued unrecorded.
    pub fn continue_unrecorded(&self, errno: u32) {
        let mine = self.process.load(Ordering::Relaxed) == system::process_id();
        let ended =
            self.state
                .compare_exchange(ENDED, CONTINUED, Ordering::AcqRel, Ordering::Relaxed);
        if mine && ended.is_ok() && self.errno.load(Ordering::Relaxed) == 0 {
            let _signals = NoSignals::hold();
            self.errno.store(errno, Ordering::Relaxed);
            self.write_progress(true);
        }
    }

    /// Called in a forked child, which is not recorded. The caller must set the cursors of its
    /// threads to null.
    pub fn forked(&self) {
        self.state.store(ENDED, Ordering::Release);
    }

    /// Packs and writes the slots of `buffer`, and empties it. The caller holds the buffer and has
    /// blocked signals.
    fn flush(&self, buffer: &Buffer) {
        let mine = self.process.load(Ordering::Relaxed) == system::process_id();
        let Some(slots) = buffer.filled().filter(|_| mine) else {
            return;
        };
        if slots.is_empty() || self.errno.load(Ordering::Relaxed) != 0 {
            self.lost.fetch_add(slots.len() as u64, Ordering::Relaxed);
            return;
        }
        self.write_stacks(buffer);
        let written = self.pool.take().and_then(|mut encoder| {
            let of = Of {
                thread: buffer.thread(),
                tid: buffer.tid(),
                sequence: buffer.next_sequence(),
                end: self.clock().after(),
                clock: system::clock(libc::CLOCK_MONOTONIC),
            };
            let (block, counts) = encoder.pack(slots, &of)?;
            self.append(&[block]).then_some(counts)
        });
        match written {
            Some(counts) => {
                self.blocks.fetch_add(1, Ordering::Relaxed);
                self.accesses.fetch_add(counts.accesses, Ordering::Relaxed);
                self.others.fetch_add(counts.others, Ordering::Relaxed);
            }
            None => {
                self.lost.fetch_add(slots.len() as u64, Ordering::Relaxed);
            }
        }
        buffer.empty();
        self.write_progress(false);
    }

    fn write_stacks(&self, buffer: &Buffer) {
        if let Some((payload, count)) = buffer.defined() {
            let header = BlockHeader::plain(Kind::Stacks, payload.len() as u32, count);
            self.append(&[&header.encoded(payload), payload]);
            buffer.forget_defined();
        }
    }

    /// Appends a block; if that fails, recording stops.
    fn append(&self, parts: &[&[u8]]) -> bool {
        match self.file.append(parts) {
            Ok(()) => true,
            Err(error) => {
                self.errno.store(error.max(1), Ordering::Relaxed);
                self.state.store(FAILED, Ordering::Release);
                self.write_progress(true);
                false
            }
        }
    }

    /// Writes the progress record. If another thread is writing it, this one returns at once unless
    /// `wait` is set.
    fn write_progress(&self, wait: bool) {
        while self.progress.swap(true, Ordering::Acquire) {
            if !wait {
                return;
            }
            system::give_way();
        }
        let progress = Progress {
            state: match self.state.load(Ordering::Relaxed) {
                FAILED => State::Failed,
                CONTINUED => State::WentOn,
                ENDED if self.errno.load(Ordering::Relaxed) != 0 => State::Failed,
                ENDED if wait => State::Complete,
                _ => State::Recording,
            },
            errno: self.errno.load(Ordering::Relaxed),
            bytes: self.file.bytes(),
            accesses: self.accesses.load(Ordering::Relaxed),
            others: self.others.load(Ordering::Relaxed),
            threads: self.threads.load(Ordering::Relaxed),
            lost: self.lost.load(Ordering::Relaxed),
        };
        // If this fails, too, readers find at the file's end that the trace is incomplete.
        let _ = self.file.write_start(&progress.prefix());
        self.progress.store(false, Ordering::Release);
    }
}
