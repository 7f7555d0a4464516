//! Blocks that are mappings of their own, and the list of them. Contexts: pre-init,
//! normal, post-fork.

use crate::lock::Lock;
use crate::memory;
use core::ptr::null_mut;
use sunder_access::PAGE_SIZE as PAGE;

/// One mapping and the block in it.
#[derive(Clone, Copy)]
#[repr(C)]
struct Huge {
    /// The block's first byte; 0 for none.
    address: usize,
    start: usize,
    bytes: usize,
}

struct Blocks {
    entries: *mut Huge,
    capacity: usize,
    /// Entries up to here may be in use.
    len: usize,
}

// SAFETY: the pointer is to memory of our own, reached under the lock.
unsafe impl Send for Blocks {}

static BLOCKS: Lock<Blocks> = Lock::new(Blocks {
    entries: null_mut(),
    capacity: 0,
    len: 0,
});

/// Holds the lock across a fork.
pub fn before_fork() {
    BLOCKS.acquire();
}

/// # Safety
/// After [`before_fork`], by the same thread or its copy in the child.
pub unsafe fn after_fork() {
    // SAFETY: by this function's contract.
    unsafe { BLOCKS.release() };
}

impl Blocks {
    fn all(&mut self) -> &mut [Huge] {
        if self.len == 0 {
            return &mut [];
        }
        // SAFETY: `len` entries of the table are filled in.
        unsafe { core::slice::from_raw_parts_mut(self.entries, self.len) }
    }

    /// The entry of the block at `address`. There are few, and each cost at
    /// least one system call and 32 MiB.
    fn find(&mut self, address: usize) -> Option<&mut Huge> {
        self.all().iter_mut().find(|huge| huge.address == address)
    }

    fn add(&mut self, new: Huge) -> Option<()> {
        if let Some(free) = self.find(0) {
            *free = new;
            return Some(());
        }
        if self.len == self.capacity {
            let capacity = (self.capacity * 2).max(PAGE / size_of::<Huge>());
            let bytes = capacity * size_of::<Huge>();
            let entries = memory::take(bytes)? as *mut Huge;
            // SAFETY: both tables hold `len` entries; the old one is not used
            // any more.
            unsafe {
                if self.len > 0 {
                    entries.copy_from_nonoverlapping(self.entries, self.len);
                }
                memory::give_back(self.entries as usize, self.capacity * size_of::<Huge>());
            }
            (self.entries, self.capacity) = (entries, capacity);
        }
        // SAFETY: there is room for one more.
        unsafe { self.entries.add(self.len).write(new) };
        self.len += 1;
        Some(())
    }
}

fn pages(bytes: usize) -> Option<usize> {
    Some(bytes.max(1).checked_add(PAGE - 1)? & !(PAGE - 1))
}

/// A block of zeroes; null if there is no memory.
pub fn allocate(size: usize, align: usize) -> *mut u8 {
    map(size, align).unwrap_or(null_mut())
}

fn map(size: usize, align: usize) -> Option<*mut u8> {
    let bytes = pages(size)?;
    let slack = if align > PAGE { align } else { 0 };
    let start = memory::take(bytes.checked_add(slack)?)?;
    let address = (start + align.max(PAGE) - 1) & !(align.max(PAGE) - 1);
    // SAFETY: what lies before and behind the block is ours and unused.
    unsafe {
        memory::give_back(start, address - start);
        memory::give_back(address + bytes, start + slack - address);
    }
    let new = Huge {
        address,
        start: address,
        bytes,
    };
    if BLOCKS.lock().add(new).is_none() {
        // SAFETY: nobody knows the block.
        unsafe { memory::give_back(address, bytes) };
        return None;
    }
    Some(address as *mut u8)
}

/// Bytes of the block at `address`, if it is one of these.
pub fn size_of_block(address: usize) -> Option<usize> {
    if address == 0 {
        return None;
    }
    let mut blocks = BLOCKS.lock();
    blocks.find(address).map(|h| h.start + h.bytes - h.address)
}

/// Frees the block at `address`; false if it is none of these.
pub fn free(address: usize) -> bool {
    if address == 0 {
        return false;
    }
    let mut blocks = BLOCKS.lock();
    let Some(huge) = blocks.find(address) else {
        return false;
    };
    let Huge { start, bytes, .. } = core::mem::replace(
        huge,
        Huge {
            address: 0,
            start: 0,
            bytes: 0,
        },
    );
    drop(blocks);
    // SAFETY: the block is the program's to free, and is in the list no more.
    unsafe { memory::give_back(start, bytes) };
    true
}

/// Resizes the block at `address` without copying; where it is then. None if
/// that can't be done, and the block is as it was.
///
/// # Safety
/// The block is the program's to move.
pub unsafe fn resize(address: usize, size: usize) -> Option<*mut u8> {
    let bytes = pages(size)?;
    let mut blocks = BLOCKS.lock();
    let huge = blocks.find(address)?;
    // SAFETY: the mapping is the block's, whose owner waits for the new address.
    let new = unsafe { memory::resize(huge.start, huge.bytes, bytes)? };
    *huge = Huge {
        address: new,
        start: new,
        bytes,
    };
    Some(new as *mut u8)
}
