//! The ring that the kernel writes records into, one per CPU. Returns whole records as bytes and
//! must not know their meaning.

use super::{PerfEvent, PerfRefusal, kernel};
use std::mem::offset_of;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU64, Ordering};

/// The page size of x86-64 Linux.
pub(crate) const PAGE: usize = sunder_access::PAGE as usize;

const HEAD_OFFSET: usize = offset_of!(kernel::perf_event_mmap_page, data_head);
const TAIL_OFFSET: usize = offset_of!(kernel::perf_event_mmap_page, data_tail);

/// A mapped ring; unmapped on drop.
#[derive(Debug)]
pub(crate) struct Ring {
    base: *mut u8,
    /// Bytes of records that fit, a power of two.
    size: usize,
}

// SAFETY: the mapping belongs to this value alone and is not tied to a thread.
unsafe impl Send for Ring {}

impl Ring {
    /// Maps the ring of `event` with `pages` pages for records, a power of two.
    ///
    /// # Errors
    /// The error number of `mmap`; `EPERM` if no more memory may be locked.
    pub(crate) fn map(event: &PerfEvent, pages: usize) -> Result<Self, i32> {
        let size = pages * PAGE;
        // SAFETY: maps fresh memory; the kernel checks descriptor and length.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                size + PAGE,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                event.as_raw_fd(),
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(std::io::Error::last_os_error().raw_os_error().unwrap_or(0));
        }
        Ok(Self {
            base: base.cast(),
            size,
        })
    }

    /// Maps the largest ring of at most `most` pages that the kernel grants,
    /// but at least `least`; both powers of two.
    pub(crate) fn map_up_to(
        event: &PerfEvent,
        most: usize,
        least: usize,
    ) -> Result<Self, PerfRefusal> {
        let mut pages = most;
        loop {
            match Self::map(event, pages) {
                Ok(ring) => return Ok(ring),
                Err(libc::EPERM | libc::ENOMEM) if pages > least => pages /= 2,
                Err(errno) => return Err(PerfRefusal::from_map_errno(errno)),
            }
        }
    }

    /// Appends the bytes of all records written since the last call to `out` and frees their space
    /// in the ring.
    pub(crate) fn take(&mut self, out: &mut Vec<u8>) {
        let head = self.counter(HEAD_OFFSET).load(Ordering::Acquire);
        let tail = self.counter(TAIL_OFFSET).load(Ordering::Relaxed);
        let available = (head.wrapping_sub(tail) as usize).min(self.size);
        let from = tail as usize & (self.size - 1);
        let first = available.min(self.size - from);
        out.extend_from_slice(self.bytes(from, first));
        out.extend_from_slice(self.bytes(0, available - first));
        self.counter(TAIL_OFFSET).store(head, Ordering::Release);
    }

    fn counter(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: the first page is mapped for as long as `self` lives, the
        // offset is a multiple of 8 within it, and the kernel accesses these
        // two words atomically.
        unsafe { &*self.base.add(offset).cast::<AtomicU64>() }
    }

    fn bytes(&self, from: usize, len: usize) -> &[u8] {
        debug_assert!(from + len <= self.size);
        // SAFETY: the range lies in the record pages; between tail and head,
        // which is all that `take` asks for, the kernel writes nothing until
        // the tail has moved, and the slice does not outlive that.
        unsafe { std::slice::from_raw_parts(self.base.add(PAGE + from), len) }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: unmaps exactly what `map` has mapped.
        unsafe { libc::munmap(self.base.cast(), self.size + PAGE) };
    }
}
