//! The address space of the heap: reserved once, used in segments of 4 MiB ([`crate::segments`]). This
//! module allocates their 64 slices of 64 KiB to all heaps, under one lock. Contexts: pre-init, normal, signal, post-fork.
//!
//! Free slices that were used keep their memory up to a limit, so that a program that frees and
//! allocates alternately does not fault its pages in each time. Memory beyond the limit is returned
//! to the system.

use crate::lock::{Guard, Lock, Rank};
use crate::memory;
use crate::segments::{
    ALL, ALL_FREE, BASE, FIRST, FURTHER, Header, MOST, MOST_SLICES, NORMAL, REACHED, SEGMENT,
    SLICE, SLICES, discard, header, mask, run,
};
use crate::span::{Owner, Span};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, Ordering};
use sunder_access::PAGE_SIZE as PAGE;
use sunder_guest::system;

/// At least so much is reserved, in bytes.
const LEAST: usize = 64 << 20;
/// So much unused memory is always kept, in slices: 8 MiB.
const KEPT: usize = (8 << 20) / SLICE;

/// The data that the lock protects; it also protects changes of [`ALL`].
struct Arena {
    /// The number of segments that may be used; 0 before the first attempt to reserve them.
    limit: usize,
    tried: bool,
    /// The number of segments in use so far.
    reached: usize,
    /// The first segments in which to search: none before the first index has a free slice, and
    /// none before the second has eight in a row.
    hints: [usize; 2],
    /// The number of free slices with memory.
    kept: usize,
    /// The number of slices in use.
    used: usize,
    purging: bool,
    /// The process was forked by one with other threads: what lies beyond the segments in use may
    /// have been written by them.
    forked: bool,
}

static ARENA: Lock<Arena> = Lock::new(
    Rank::Arena,
    Arena {
        limit: 0,
        tried: false,
        reached: 0,
        hints: [0; 2],
        kept: 0,
        used: 0,
        purging: false,
        forked: false,
    },
);

/// Spans that were freed in a signal handler when the arena could not be used, linked by their
/// `next_returned`. Their slices are freed when it is used next.
static LEFT: AtomicPtr<Span> = AtomicPtr::new(null_mut());

/// The arena, in which the spans that were left are freed. `None` as for [`Lock::lock`].
fn arena() -> Option<Guard<'static, Arena>> {
    let mut arena = ARENA.lock()?;
    if !LEFT.load(Ordering::Relaxed).is_null() {
        let mut span = LEFT.swap(null_mut(), Ordering::Acquire);
        while !span.is_null() {
            // SAFETY: the list was taken as a whole, and its spans have no blocks.
            unsafe {
                let next = (*span).shared.next_returned.load(Ordering::Relaxed);
                arena.free(span);
                span = next;
            }
        }
    }
    Some(arena)
}

fn leave(span: *mut Span) {
    // SAFETY: the span has no blocks, and only this thread knows it.
    let next = unsafe { &(*span).shared.next_returned };
    let mut first = LEFT.load(Ordering::Relaxed);
    loop {
        next.store(first, Ordering::Relaxed);
        match LEFT.compare_exchange_weak(first, span, Ordering::Release, Ordering::Relaxed) {
            Ok(_) => return,
            Err(now) => first = now,
        }
    }
}

/// Reserves the arena's addresses. The first allocation would do so, but by then the program may have
/// confined itself by a filter that does not know the call for the limit of the address space.
pub fn prepare() {
    if let Some(mut arena) = arena() {
        arena.prepare();
    }
}

/// Whether the calling thread runs a signal handler that may have been refused here: it has
/// interrupted a section for which the arena would have to wait.
pub fn may_refuse() -> bool {
    ARENA.may_refuse()
}

/// In the child of a fork in which other threads ran: makes good what one of them may have left half
/// done.
pub fn after_fork() {
    if let Some(mut arena) = ARENA.take_over() {
        LEFT.store(null_mut(), Ordering::Relaxed);
        arena.make_good();
    }
}

/// A run of slices.
#[derive(Clone, Copy)]
pub struct Slices {
    /// The descriptor of their span, not filled in.
    pub span: *mut Span,
    /// The address of the first byte.
    pub start: usize,
    /// The number of slices.
    pub count: usize,
    /// Whether they hold only zeroes.
    pub zero: bool,
}

impl Arena {
    fn prepare(&mut self) -> bool {
        if self.tried {
            return self.limit > 0;
        }
        self.tried = true;
        // Half of a limited address space is left to the program's own mappings.
        let limit = match system::limit(libc::RLIMIT_AS) {
            0 | u64::MAX => MOST,
            limit => (limit as usize / 2).min(MOST),
        };
        let mut bytes = limit & !(SEGMENT - 1);
        while bytes >= LEAST {
            if let Some(start) = memory::reserve(bytes) {
                let base = (start + SEGMENT - 1) & !(SEGMENT - 1);
                BASE.store(base, Ordering::Relaxed);
                self.limit = (start + bytes - base) / SEGMENT;
                return self.limit > 0;
            }
            bytes /= 2;
        }
        false
    }

    /// Takes `count` more segments into use; returns the first.
    fn extend(&mut self, count: usize) -> Option<usize> {
        let first = self.reached;
        if first + count > self.limit {
            return None;
        }
        let start = BASE.load(Ordering::Relaxed) + first * SEGMENT;
        // SAFETY: the range is reserved by us and not in use.
        if !unsafe { memory::commit(start, count * SEGMENT) } {
            return None;
        }
        // SAFETY: as above.
        unsafe {
            if self.forked && !memory::discard(start, count * SEGMENT) {
                (start as *mut u8).write_bytes(0, count * SEGMENT);
            }
        }
        for segment in first..first + count {
            ALL.dirty[segment].store(0, Ordering::Relaxed);
            ALL.free[segment].store(ALL_FREE, Ordering::Relaxed);
            ALL.state[segment].store(NORMAL, Ordering::Relaxed);
        }
        self.reached += count;
        REACHED.store(self.reached * SEGMENT, Ordering::Release);
        Some(first)
    }

    /// Marks slices of a segment as used; returns whether they are all zero.
    fn claim(&mut self, segment: usize, bits: u64) -> bool {
        let free = ALL.free[segment].load(Ordering::Relaxed);
        ALL.free[segment].store(free & !bits, Ordering::Relaxed);
        let dirty = ALL.dirty[segment].load(Ordering::Relaxed);
        // Bit 0: the header, or a block that lies in its place.
        ALL.dirty[segment].store(dirty | bits | 1, Ordering::Relaxed);
        self.kept -= (dirty & bits).count_ones() as usize;
        self.used += bits.count_ones() as usize;
        dirty & bits == 0
    }

    /// Frees the slices of a span without blocks.
    ///
    /// # Safety
    /// As [`free`], and only this thread knows the span.
    unsafe fn free(&mut self, span: *mut Span) {
        // SAFETY: by this function's contract.
        let (start, count) = unsafe { ((*span).fixed.start, (*span).fixed.slices as usize) };
        let offset = start - BASE.load(Ordering::Relaxed);
        let (segment, first) = (offset / SEGMENT, offset % SEGMENT / SLICE);
        // SAFETY: by this function's contract.
        unsafe { note_reached(span) };
        if count <= MOST_SLICES && ALL.state[segment].load(Ordering::Relaxed) == NORMAL {
            self.release(segment, mask(first, count));
            return;
        }
        for further in segment..segment + (count + 1) / SLICES {
            if further > segment {
                // The block's bytes must not be read as a header.
                // SAFETY: a part of the block, which is free.
                unsafe { header(further).write_bytes(0, 1) };
            }
            ALL.state[further].store(NORMAL, Ordering::Relaxed);
            self.release(further, ALL_FREE);
        }
    }

    fn release(&mut self, segment: usize, bits: u64) {
        ALL.free[segment].fetch_or(bits, Ordering::Relaxed);
        let count = bits.count_ones() as usize;
        self.kept += count;
        self.used -= count;
        for hint in &mut self.hints {
            *hint = (*hint).min(segment);
        }
    }

    /// Finds free slices; in new segments only with `extend`.
    fn find(&mut self, count: usize, extend: bool) -> Option<Slices> {
        if count <= MOST_SLICES {
            self.within(count, extend)
        } else {
            self.across((count + 1).div_ceil(SLICES), extend)
        }
    }

    /// Finds slices within one segment.
    fn within(&mut self, count: usize, extend: bool) -> Option<Slices> {
        let kind = usize::from(count > 1);
        let mut segment = self.hints[kind];
        let first = loop {
            if segment >= self.reached {
                if !extend {
                    return None;
                }
                segment = self.extend(1)?;
            }
            if ALL.state[segment].load(Ordering::Relaxed) == NORMAL
                && let Some(first) = run(ALL.free[segment].load(Ordering::Relaxed), count)
            {
                break first;
            }
            segment += 1;
        };
        // For longer runs the hint is right only if eight is the shortest run that is asked for.
        // Odd large blocks are the exception, and they do not move it.
        if count == 1 || count == 8 {
            self.hints[kind] = segment;
        }
        let zero = self.claim(segment, mask(first, count));
        let header = header(segment);
        // SAFETY: a segment in use has a header, and these slices were claimed above.
        unsafe {
            for slice in first..first + count {
                (&mut (*header).head)[slice] = first as u8;
            }
            Some(Slices {
                span: &raw mut (&mut (*header).spans)[first],
                start: header as usize + first * SLICE,
                count,
                zero,
            })
        }
    }

    /// Finds whole segments in a row, without the first slice.
    fn across(&mut self, segments: usize, extend: bool) -> Option<Slices> {
        let mut row = 0;
        let mut found = None;
        for segment in 0..self.reached {
            let unused = ALL.state[segment].load(Ordering::Relaxed) == NORMAL
                && ALL.free[segment].load(Ordering::Relaxed) == ALL_FREE;
            row = if unused { row + 1 } else { 0 };
            if row == segments {
                found = Some(segment + 1 - segments);
                break;
            }
        }
        let first = match found {
            Some(first) => first,
            // Free segments at the end become part of the run.
            None if !extend => return None,
            None => {
                let first = self.reached - row;
                self.extend(segments - row)?;
                first
            }
        };
        let mut zero = true;
        for segment in first..first + segments {
            if segment > first {
                // A segment that was in use before may have a header.
                zero &= ALL.dirty[segment].load(Ordering::Relaxed) & 1 == 0;
            }
            zero &= self.claim(segment, ALL_FREE);
            let state = if segment == first { FIRST } else { FURTHER };
            ALL.state[segment].store(state, Ordering::Relaxed);
        }
        let header = header(first);
        // SAFETY: as in `within`.
        unsafe {
            (&mut (*header).head)[1..].fill(1);
            Some(Slices {
                span: &raw mut (&mut (*header).spans)[1],
                start: header as usize + SLICE,
                count: segments * SLICES - 1,
                zero,
            })
        }
    }

    /// Other threads were perhaps changing all this when their process was forked, and of what they
    /// wrote, this process may have the later part without the earlier. What they were about to use
    /// is not used again; the rest is counted anew. Blocks that were allocated before the fork are
    /// where they were.
    fn make_good(&mut self) {
        let committed = REACHED.load(Ordering::Relaxed) / SEGMENT;
        self.reached = self.reached.max(committed);
        REACHED.store(self.reached * SEGMENT, Ordering::Relaxed);
        self.hints = [0; 2];
        self.purging = false;
        self.forked = true;
        (self.kept, self.used) = (0, 0);
        for segment in 0..self.reached {
            // A free slice may hold what another thread wrote there after it had been claimed.
            ALL.dirty[segment].store(u64::MAX, Ordering::Relaxed);
            let normal = ALL.state[segment].load(Ordering::Relaxed) == NORMAL;
            let free = ALL.free[segment].load(Ordering::Relaxed) & ALL_FREE;
            let free = if normal {
                free.count_ones() as usize
            } else {
                0
            };
            self.kept += free;
            self.used += MOST_SLICES - free;
        }
    }

    fn limit_of_kept(&self) -> usize {
        KEPT.max(self.used / 8)
    }

    /// Claims slices to be returned to the system: a segment and their mask. The search begins at
    /// the end, because allocation begins at the front.
    fn claim_unused(&mut self, from: usize) -> Option<(usize, u64)> {
        for segment in (0..from.min(self.reached)).rev() {
            let free = ALL.free[segment].load(Ordering::Relaxed);
            let bits = free & ALL.dirty[segment].load(Ordering::Relaxed);
            if bits & ALL_FREE != 0 {
                let bits = bits & ALL_FREE;
                ALL.free[segment].store(free & !bits, Ordering::Relaxed);
                return Some((segment, bits));
            }
        }
        None
    }
}

/// `count` slices in a row, as a span of blocks of `block` bytes for `owner`. The result says
/// whether the memory is all zero. If no such slices are free, `reclaim` is called without the
/// lock, before more segments are taken into use: it may free some.
pub fn allocate(count: usize, owner: *mut Owner, block: usize, reclaim: fn()) -> Option<Slices> {
    let mut arena = self::arena()?;
    if !arena.prepare() {
        return None;
    }
    let mut found = arena.find(count, false);
    if found.is_none() {
        drop(arena);
        reclaim();
        arena = self::arena()?;
        found = arena.find(count, true);
    }
    let slices = found?;
    // SAFETY: the descriptor belongs to the claimed slices. It is filled in under the lock, so that
    // a thread that sees the slices sees the span.
    unsafe {
        let room = slices.count * SLICE;
        (*slices.span).set(owner, slices.start, slices.count as u32, block, room);
    }
    Some(slices)
}

/// Notes which pages of a span's slices the blocks have reached that it has had so far.
///
/// # Safety
/// Only the calling thread uses the span.
pub unsafe fn note_reached(span: *mut Span) {
    // SAFETY: by this function's contract; the header of a segment in use.
    unsafe {
        let (start, count) = ((*span).fixed.start, (*span).fixed.slices as usize);
        let header = (start & !(SEGMENT - 1)) as *mut Header;
        let first = start % SEGMENT / SLICE;
        let pages = match count {
            1 => ((*span).own.carved as usize * (*span).fixed.block).div_ceil(PAGE),
            _ => SLICE / PAGE,
        };
        for of_slice in &mut (&mut (*header).pages)[first..SLICES.min(first + count)] {
            *of_slice = pages.min(SLICE / PAGE).max(usize::from(*of_slice)) as u8;
        }
    }
}

/// Returns the memory of a new span of one slice to the system, except for its first page: a bucket
/// may never need more, and what others have left there is not counted as its memory.
///
/// # Safety
/// The caller has allocated the span, in which there are no blocks yet.
pub unsafe fn leave_one_page(span: *mut Span) {
    // SAFETY: by this function's contract; the header of a segment in use.
    unsafe {
        let start = (*span).fixed.start;
        let header = (start & !(SEGMENT - 1)) as *mut Header;
        let pages = &mut (&mut (*header).pages)[start % SEGMENT / SLICE];
        let bytes = usize::from(*pages) * PAGE;
        if bytes > PAGE && memory::discard(start + PAGE, bytes - PAGE) {
            *pages = 1;
        }
    }
}

/// Frees a span's slices.
///
/// # Safety
/// No block of the span is allocated, and the span is in no bin.
pub unsafe fn free(span: *mut Span) {
    // From here on a pointer into the slices finds a span without blocks.
    // SAFETY: by this function's contract.
    unsafe {
        (*span).fixed.capacity = 0;
        (*span).fixed.bytes = 0;
        (*span).fixed.owner = null_mut();
    }
    // A handler that has interrupted a section here might be refused half way through a purge.
    let may_purge = !ARENA.may_refuse();
    let Some(mut arena) = self::arena() else {
        leave(span);
        return;
    };
    // SAFETY: by this function's contract.
    unsafe { arena.free(span) };
    let too_much = arena.kept > arena.limit_of_kept() && !arena.purging && may_purge;
    if too_much {
        arena.purging = true;
        let least = arena.limit_of_kept() / 2;
        drop(arena);
        purge(least);
    }
}

/// Returns free memory to the system until `least` slices of it are left.
fn purge(least: usize) {
    let mut from = usize::MAX;
    // The lock is not refused: see the callers.
    while let Some(mut arena) = self::arena() {
        let next = if arena.kept > least {
            arena.claim_unused(from)
        } else {
            None
        };
        let Some((segment, bits)) = next else {
            arena.purging = false;
            return;
        };
        drop(arena);
        let gone = discard(segment, bits);
        let Some(mut arena) = self::arena() else {
            return;
        };
        ALL.free[segment].fetch_or(bits, Ordering::Relaxed);
        if gone {
            ALL.dirty[segment].fetch_and(!bits, Ordering::Relaxed);
            arena.kept -= bits.count_ones() as usize;
        }
        for hint in &mut arena.hints {
            *hint = (*hint).min(segment);
        }
        from = segment;
    }
}

/// Returns all free memory to the system; returns whether there was any.
pub fn trim() -> bool {
    if ARENA.may_refuse() {
        return false;
    }
    let Some(mut arena) = self::arena() else {
        return false;
    };
    if arena.kept == 0 || arena.purging {
        return false;
    }
    arena.purging = true;
    drop(arena);
    purge(0);
    true
}
