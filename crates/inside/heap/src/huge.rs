//! Blocks that are mappings of their own, and the list of these blocks. Contexts: pre-init, normal,
//! post-fork.

use crate::lock::Lock;
use crate::memory;
use core::ptr::null_mut;
use sunder_access::PAGE_SIZE as PAGE;

/// A mapping, and the block in it.
#[derive(Clone, Copy)]
#[repr(C)]
struct Huge {
    /// The address of the block; 0 for none.
    address: usize,
    start: usize,
    bytes: usize,
}

struct Blocks {
    entries: *mut Huge,
    capacity: usize,
    /// Entries below this index may be in use.
    len: usize,
}

// SAFETY: the pointer is to our own memory, which is used only under the lock.
unsafe impl Send for Blocks {}

static BLOCKS: Lock<Blocks> = Lock::new(Blocks {
    entries: null_mut(),
    capacity: 0,
    len: 0,
});

/// Takes the lock, which is held across a fork.
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

    /// The entry of the block at `address`. A linear search: blocks are few, because each costs at
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
            // SAFETY: both tables have `len` entries; the old one is not used any more.
            unsafe {
                if self.len > 0 {
                    entries.copy_from_nonoverlapping(self.entries, self.len);
                }
                memory::give_back(self.entries as usize, self.capacity * size_of::<Huge>());
            }
            (self.entries, self.capacity) = (entries, capacity);
        }
        // SAFETY: the table has room for one more entry.
        unsafe { self.entries.add(self.len).write(new) };
        self.len += 1;
        Some(())
    }
}

fn pages(bytes: usize) -> Option<usize> {
    Some(bytes.max(1).checked_add(PAGE - 1)? & !(PAGE - 1))
}

/// A zeroed block; null if there is no memory.
pub fn allocate(size: usize, align: usize) -> *mut u8 {
    map(size, align).unwrap_or(null_mut())
}

fn map(size: usize, align: usize) -> Option<*mut u8> {
    let bytes = pages(size)?;
    let slack = if align > PAGE { align } else { 0 };
    let start = memory::take(bytes.checked_add(slack)?)?;
    let address = (start + align.max(PAGE) - 1) & !(align.max(PAGE) - 1);
    // SAFETY: the parts before and after the block belong to our new mapping and are unused.
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
        // SAFETY: the block was not returned to the program.
        unsafe { memory::give_back(address, bytes) };
        return None;
    }
    Some(address as *mut u8)
}

/// The size of the block at `address` in bytes, if it is in the list.
pub fn size_of_block(address: usize) -> Option<usize> {
    if address == 0 {
        return None;
    }
    let mut blocks = BLOCKS.lock();
    blocks.find(address).map(|h| h.start + h.bytes - h.address)
}

/// Frees the block at `address`; false if it is not in the list.
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
    // SAFETY: the program frees the block, and it is not in the list any more.
    unsafe { memory::give_back(start, bytes) };
    true
}

/// Resizes the block at `address` without copying and returns its new address. `None` if that is
/// not possible; the block is then unchanged.
///
/// # Safety
/// The program has passed the block to be resized.
pub unsafe fn resize(address: usize, size: usize) -> Option<*mut u8> {
    let bytes = pages(size)?;
    let mut blocks = BLOCKS.lock();
    let huge = blocks.find(address)?;
    // SAFETY: the mapping holds only this block, whose user waits for the new address.
    let new = unsafe { memory::resize(huge.start, huge.bytes, bytes)? };
    *huge = Huge {
        address: new,
        start: new,
        bytes,
    };
    Some(new as *mut u8)
}
