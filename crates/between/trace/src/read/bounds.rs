//! Bounds for the numbers in a trace, which are checked before any of them is used. A checksum
//! proves that a block is as it was written, not that it was written by a recorder. Called while a
//! trace is opened; it reads no event and repairs nothing: a file that breaks a bound is refused
//! with one sentence.
//!
//! Reading takes at most [`memory_for`] bytes, whatever the file says; in the parallel order, some ten
//! bytes more for each release of an object, however few bytes of the file stand for these. Only the
//! guard bounds that. What callers make of the
//! events (lines of a simulated machine, blocks of a heap) is theirs; [`super::Guard`] lets them end
//! the reading.

use crate::block::{BlockHeader, Kind};
use crate::codec::{SLOTS, Site};

/// The most bytes of memory that a trace of `length` bytes takes while it is read, in either order.
/// Recordings of real programs take three to ten times their size, and at most some megabytes for
/// each thread.
pub const fn memory_for(length: u64) -> u64 {
    const SMALL: u64 = 256 << 20;
    const MULTIPLE: u64 = 64;
    SMALL.saturating_add(length.saturating_mul(MULTIPLE))
}

/// The most bytes that blocks other than events take unpacked, in a trace of `length` bytes. They
/// are kept as long as the trace is open, in a form that takes up to five times as much. Recorders
/// do not compress them.
const fn kept_for(length: u64) -> u64 {
    memory_for(length) / 16
}

/// How many slots are decoded at once: three columns of 8 KiB, so that those of some tens of
/// threads stay in the second-level cache.
pub(super) const BATCH: usize = 1024;

/// The largest number of a thread in the kernel (`PID_MAX_LIMIT`), which is not given to any.
pub(super) const KERNEL_THREADS: u32 = 1 << 22;

/// The fewest bytes of an entry: of a stack, its number and how many frames; of a module, its base,
/// the lengths of its path and build ID, and how many segments.
const STACK_BYTES: u64 = 8;
const MODULE_BYTES: u64 = 20;

/// What the blocks so far have taken.
#[derive(Debug, Default)]
pub(super) struct Bounds {
    kept: u64,
}

impl Bounds {
    /// Checks the numbers of a block's header, in a file of `length` bytes, before its payload is
    /// read. The error says which number is wrong.
    pub(super) fn check(&mut self, header: &BlockHeader, length: u64) -> Result<(), String> {
        let BlockHeader {
            kind: Some(kind),
            count,
            unpacked,
            thread,
            tid,
            ..
        } = *header
        else {
            return Ok(());
        };
        if kind == Kind::Events {
            if count as usize > SLOTS {
                return Err(format!(
                    "a block says that it has {count} events, and {SLOTS} is the most"
                ));
            }
            if thread == 0 {
                return Err("events belong to a thread with the number 0".to_owned());
            }
            if tid >= KERNEL_THREADS {
                return Err(format!(
                    "a thread has the kernel's number {tid}, and no kernel gives numbers from \
                     {KERNEL_THREADS} on"
                ));
            }
            return Ok(());
        }
        let (entry, entries) = match kind {
            Kind::Stacks => (STACK_BYTES, "call stacks"),
            Kind::Modules => (MODULE_BYTES, "loaded files"),
            Kind::Header | Kind::End | Kind::Events => (0, ""),
        };
        if u64::from(count) * entry > u64::from(unpacked) {
            return Err(format!(
                "a block of {unpacked} bytes says that it has {count} {entries}"
            ));
        }
        self.kept = self.kept.saturating_add(u64::from(unpacked));
        if self.kept > kept_for(length) {
            return Err(format!(
                "the call stacks and loaded files up to here take {} bytes unpacked, and the file \
                 has {length}",
                self.kept
            ));
        }
        Ok(())
    }
}

/// Checks what the events of all threads take while they are read: a block of each at a time, for
/// the parallel order begins with all threads. Of each thread, `threads` has the number and, for
/// each block, the place in the file and the header. The error says where in the file, and what is
/// wrong.
pub(super) fn check_threads<'b, B>(
    threads: impl Iterator<Item = (u32, B)>,
    length: u64,
) -> Result<(), (u64, String)>
where
    B: Iterator<Item = (u64, &'b BlockHeader)>,
{
    let mut all = 0u64;
    for (thread, blocks) in threads {
        let blocks = blocks.map(|(offset, header)| (in_memory(header), offset));
        let Some((bytes, offset)) = blocks.max_by_key(|(bytes, _)| *bytes) else {
            continue;
        };
        all = all.saturating_add(bytes);
        if all > memory_for(length) {
            let what = format!(
                "thread {thread} and those with smaller numbers take {all} bytes of memory to \
                 read, and the file has {length}"
            );
            return Err((offset, what));
        }
    }
    Ok(())
}

/// Bytes of memory for reading a block: its payload, the sites (of which each takes two bytes of the
/// payload at least; their list may be twice as long), and the slots that are decoded at once.
const fn in_memory(header: &BlockHeader) -> u64 {
    const SLOT: u64 = 3 * size_of::<u64>() as u64;
    const AT_ONCE: u64 = 2 * BATCH as u64;
    let (unpacked, count) = (header.unpacked as u64, header.count as u64);
    let sites = if unpacked / 2 < count {
        unpacked / 2
    } else {
        count
    };
    let slots = if count < AT_ONCE { count } else { AT_ONCE };
    unpacked + sites * 2 * size_of::<Site>() as u64 + slots * SLOT
}
