//! A span: some slices of a segment, cut into blocks of one size, all of them allocated by one
//! heap; and a bin: the spans of one heap with blocks for one kind of request that may have free
//! blocks. A span's own fields link it into its bin. Contexts: pre-init, normal, post-fork.
//!
//! The owner takes and returns blocks without synchronisation. Other threads push blocks onto
//! `remote`; the owner takes that whole list when it needs blocks. A span without free blocks
//! leaves its bin and has [`FULL`] in `remote`: the thread that pushes the first block there adds
//! the span to the heap's `returned` list. What a heap is, only [`crate::heap`] knows.

use crate::block::{Block, End, Secret, end_of};
use crate::fatal;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

/// In `remote`: the span is in no bin, and the next thread that pushes a block must add the span to
/// the heap's `returned` list.
pub const FULL: usize = 1;

/// The heap to which a span belongs: an address to compare. Only [`crate::heap`] follows it.
pub enum Owner {}

/// The fields that every thread may read; they do not change while the span lives.
#[repr(C, align(64))]
pub struct Fixed {
    /// The heap that allocates in this span; null only while the span has no slices.
    pub owner: *mut Owner,
    /// The address of the first block.
    pub start: usize,
    /// 2^64 / block, rounded up: shows whether an offset is a multiple of the block size.
    inverse: u64,
    /// Size of a block, in bytes.
    pub block: usize,
    /// The number of blocks for which there is room.
    pub capacity: u32,
    /// The number of slices, in as many segments as that takes.
    pub slices: u32,
    /// Size of all blocks, in bytes; 0 if no block may be allocated here.
    pub bytes: usize,
}

/// The fields that only the owner uses.
#[repr(C, align(64))]
pub struct Own {
    /// The first free block; if there is none, an end, which can be read and is no whole block.
    pub free: *mut Block,
    /// The number of allocated blocks, as far as the owner knows.
    pub used: u32,
    /// The number of blocks that have been made so far.
    pub carved: u32,
    pub next: *mut Span,
    pub prev: *mut Span,
    pub bin: *mut Bin,
    /// A free calls [`crate::heap::Heap::settle`] when no more blocks than this remain allocated:
    /// 0, or all of them while the span is in no bin ([`Own::is_full`]).
    settle_at: u32,
    /// The heap keeps the span when it is empty.
    pub kept: bool,
    /// The heap's generation when the span was made. Under another one, nothing
    /// is allocated here until the span is empty.
    pub generation: u32,
}

impl Own {
    /// Whether the span is in no bin: [`FULL`] is or was set.
    pub const fn is_full(&self) -> bool {
        self.settle_at != 0
    }

    /// See [`Own::is_full`].
    pub const fn set_full(&mut self, full: bool) {
        self.settle_at = if full { u32::MAX } else { 0 };
    }
}

/// The fields that other threads write.
#[repr(C, align(64))]
pub struct Shared {
    /// The list of blocks that other threads freed, or [`FULL`].
    pub remote: AtomicUsize,
    /// The next span in the heap's `returned` list.
    pub next_returned: AtomicPtr<Span>,
}

#[repr(C)]
pub struct Span {
    pub fixed: Fixed,
    pub own: Own,
    pub shared: Shared,
}

/// Blocks are made in portions of so many bytes, a page, so that memory is touched only as it is
/// needed.
const CARVED: usize = 4096;

impl Span {
    /// A span without slices and blocks, as an initial value.
    #[expect(
        clippy::declare_interior_mutable_const,
        reason = "copied, never referred to"
    )]
    pub const NONE: Self = Self {
        fixed: Fixed {
            owner: null_mut(),
            start: 0,
            inverse: 0,
            block: 0,
            capacity: 0,
            slices: 0,
            bytes: 0,
        },
        own: Own {
            free: null_mut(),
            used: 0,
            carved: 0,
            next: null_mut(),
            prev: null_mut(),
            bin: null_mut(),
            settle_at: 0,
            kept: false,
            generation: 0,
        },
        shared: Shared {
            remote: AtomicUsize::new(0),
            next_returned: AtomicPtr::new(null_mut()),
        },
    };

    /// A span without blocks from which blocks can be asked.
    #[expect(
        clippy::declare_interior_mutable_const,
        reason = "copied, never referred to"
    )]
    pub const PLACEHOLDER: Self = {
        static END: End = End::NEW;
        let mut span = Self::NONE;
        span.own.free = (&raw const END).cast_mut().cast();
        span
    };

    /// Sets up a span of `slices` slices at `start` with blocks of `block` bytes.
    pub fn set(&mut self, owner: *mut Owner, start: usize, slices: u32, block: usize, room: usize) {
        *self = Self::NONE;
        self.own.free = end_of(start);
        let capacity = (room / block.max(1)).max(1);
        self.fixed = Fixed {
            owner,
            start,
            inverse: (u64::MAX / block.max(1) as u64).wrapping_add(1),
            block,
            capacity: capacity as u32,
            slices,
            bytes: capacity * block,
        };
    }

    /// Whether `address` is the start of one of its blocks.
    #[inline(always)]
    pub fn starts_block(&self, address: usize) -> bool {
        let offset = address.wrapping_sub(self.fixed.start);
        // Exact for offsets below 2^32 (Lemire, Kaser and Kurz, "Faster remainder by direct
        // computation"); no offset is larger.
        offset < self.fixed.bytes
            && (offset as u64).wrapping_mul(self.fixed.inverse) < self.fixed.inverse
    }

    /// Takes a free block from the owner's list; null if it is empty, or if
    /// [`Self::check_first`] would end the program. The fast paths call nothing.
    ///
    /// # Safety
    /// The caller owns the span.
    #[inline(always)]
    pub unsafe fn take(&mut self) -> *mut Block {
        let block = self.own.free;
        // SAFETY: free blocks belong to the span and are linked by it, and an end is readable.
        unsafe {
            if !Block::is_whole(block, Secret::get()) {
                return null_mut();
            }
            self.own.free = Block::next(block);
            Block::open(block);
        }
        self.own.used += 1;
        block
    }

    /// Ends the program if the first free block is not as the heap has left it.
    ///
    /// # Safety
    /// The caller owns the span.
    pub unsafe fn check_first(&self) {
        let block = self.own.free;
        // SAFETY: free blocks belong to the span and are linked by it.
        if !Block::is_end(block) && unsafe { !Block::is_whole(block, Secret::get()) } {
            report_overwritten(block, self);
        }
    }

    /// Frees a block; returns whether [`crate::heap::Heap::settle`] must be called.
    ///
    /// # Safety
    /// The caller owns the span, and `block` is one of its blocks.
    #[inline(always)]
    pub unsafe fn give(&mut self, block: *mut Block) -> bool {
        let secret = Secret::get();
        // SAFETY: the program frees the block, which belongs to the span from here on.
        unsafe {
            if Block::may_be_free(block, secret) {
                double_free(block, self);
                return false;
            }
            Block::link(block, self.own.free, secret);
        }
        self.own.free = block;
        self.own.used = self.own.used.wrapping_sub(1);
        self.own.used <= self.own.settle_at
    }

    /// Bytes of the blocks of `block` bytes that are made at a time.
    pub const fn portion(block: usize) -> usize {
        if block > CARVED {
            block
        } else {
            CARVED / block * block
        }
    }

    /// Makes more blocks, if there is room.
    ///
    /// # Safety
    /// The caller owns the span.
    pub unsafe fn carve(&mut self) {
        let room = (self.fixed.capacity - self.own.carved) as usize;
        let wanted = (Self::portion(self.fixed.block) / self.fixed.block).min(room);
        let secret = Secret::get();
        let first = self.fixed.start + self.own.carved as usize * self.fixed.block;
        for i in (0..wanted).rev() {
            let block = (first + i * self.fixed.block) as *mut Block;
            // SAFETY: memory of the span that was never allocated.
            unsafe { Block::link(block, self.own.free, secret) };
            self.own.free = block;
        }
        self.own.carved += wanted as u32;
    }

    /// Takes the blocks that other threads have freed.
    ///
    /// # Safety
    /// The caller owns the span, which is not marked [`FULL`].
    pub unsafe fn collect(&mut self) {
        if self.shared.remote.load(Ordering::Relaxed) & !FULL == 0 {
            return;
        }
        let mut block = self.shared.remote.swap(0, Ordering::Acquire) as *mut Block;
        let secret = Secret::get();
        while !Block::is_end(block) {
            // SAFETY: blocks in the list are free and sealed, and belong to the owner from here on.
            unsafe {
                if !Block::is_whole(block, secret) {
                    report_overwritten(block, self);
                }
                let next = Block::next(block);
                Block::link(block, self.own.free, secret);
                self.own.free = block;
                block = next;
            }
            self.own.used = self.own.used.wrapping_sub(1);
        }
    }

    /// Marks the span as in no bin; false if other threads have freed blocks meanwhile.
    pub fn mark_full(&self) -> bool {
        self.shared
            .remote
            .compare_exchange(0, FULL, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    }

    /// Removes the mark; false if another thread has just done so, which then tells the heap.
    pub fn unmark_full(&self) -> bool {
        self.shared
            .remote
            .compare_exchange(FULL, 0, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    }

    /// Pushes a block that a thread other than the owner frees; returns whether the heap's
    /// `returned` list must get the span.
    ///
    /// # Safety
    /// `block` is a block of `span`, and the program frees it.
    #[inline(always)]
    pub unsafe fn push_remote(span: *mut Self, block: *mut Block) -> bool {
        let secret = Secret::get();
        // SAFETY: the span lives while one of its blocks is allocated, which this one is until the
        // exchange succeeds; nothing of it is used after that.
        unsafe {
            if Block::may_be_free(block, secret) {
                double_free(block, span);
                return false;
            }
            let remote = &raw const (*span).shared.remote;
            let mut old = (*remote).load(Ordering::Relaxed);
            loop {
                let mut rest = (old & !FULL) as *mut Block;
                if rest.is_null() {
                    rest = end_of(block as usize);
                }
                Block::link(block, rest, secret);
                match (*remote).compare_exchange_weak(
                    old,
                    block as usize,
                    Ordering::Release,
                    Ordering::Relaxed,
                ) {
                    Ok(_) => return old == FULL,
                    Err(now) => old = now,
                }
            }
        }
    }
}

/// Ends the program because of a block of a live span.
fn abort(what: &[u8], block: *const Block, span: *const Span) -> ! {
    // SAFETY: bins live as long as their heap, whose memory is never unmapped. The owner may change
    // these words, but the program ends.
    let (size, site) = unsafe {
        let bin = (&raw const (*span).own.bin).read_volatile();
        let site = if bin.is_null() { 0 } else { (*bin).site };
        ((*span).fixed.block, site)
    };
    fatal::abort_of(what, block as usize, size, site)
}

extern "C" fn report_double_free(block: *mut Block, span: *const Span) {
    // SAFETY: the program has passed a block of the span to be freed.
    unsafe {
        if Block::is_whole(block, Secret::get()) {
            abort(b"double free", block, span);
        }
        // The program's data look like a seal.
        Block::open(block);
        free_again(block);
    }
}

/// Calls `free`. If the compiler saw that, it would leave out what was just stored in the block.
#[unsafe(naked)]
unsafe extern "C" fn free_again(block: *mut Block) {
    core::arch::naked_asm!("jmp qword ptr [rip + free@GOTPCREL]")
}

fn report_overwritten(block: *const Block, span: *const Span) -> ! {
    abort(
        b"the program wrote to memory that it had freed",
        block,
        span,
    )
}

fatal::jumps! {
    /// Reports that `block` of `span` was freed before, and aborts; or frees it if it was not.
    double_free(block: *mut Block, span: *const Span) => report_double_free;
}

/// The spans for one size (or one size and call site) of one heap.
#[repr(C)]
pub struct Bin {
    /// The span to allocate from; spans with room follow.
    pub first: *mut Span,
    /// Size of a block, in bytes.
    pub block: usize,
    /// The return address of the calls that allocate here; 0 if calls are not distinguished.
    pub site: u64,
    /// The range of indices of [`crate::heap::Heap::direct`] that point to this bin: from, to.
    pub direct: (u16, u16),
}

impl Bin {
    /// A bin without spans.
    pub const EMPTY: Self = Self {
        first: null_mut(),
        block: 0,
        site: 0,
        direct: (0, 0),
    };

    /// Whether `span` is its only span.
    ///
    /// # Safety
    /// The heap's owner calls, and the span is in this bin.
    pub unsafe fn has_only(&self, span: *mut Span) -> bool {
        // SAFETY: by this function's contract.
        self.first == span && unsafe { (*span).own.next.is_null() }
    }

    /// Inserts a span: at the front, or after the first span, which is being allocated from.
    ///
    /// # Safety
    /// The heap's owner calls, and the span is in no bin.
    pub unsafe fn insert(&mut self, span: *mut Span, front: bool) {
        // SAFETY: spans in bins are live and the owner's.
        unsafe {
            let first = self.first;
            (*span).own.bin = self;
            if front || first.is_null() {
                (*span).own.prev = null_mut();
                (*span).own.next = first;
                if !first.is_null() {
                    (*first).own.prev = span;
                }
                self.first = span;
            } else {
                let next = (*first).own.next;
                (*span).own.prev = first;
                (*span).own.next = next;
                (*first).own.next = span;
                if !next.is_null() {
                    (*next).own.prev = span;
                }
            }
        }
    }

    /// Removes a span.
    ///
    /// # Safety
    /// The heap's owner calls, and the span is in this bin.
    pub unsafe fn remove(&mut self, span: *mut Span) {
        // SAFETY: spans in bins are live and the owner's.
        unsafe {
            let (prev, next) = ((*span).own.prev, (*span).own.next);
            if prev.is_null() {
                self.first = next;
            } else {
                (*prev).own.next = next;
            }
            if !next.is_null() {
                (*next).own.prev = prev;
            }
            (*span).own.prev = null_mut();
            (*span).own.next = null_mut();
        }
    }
}
