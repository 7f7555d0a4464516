//! Blocks that are mappings of their own, and the list of these blocks. Contexts: pre-init, normal,
//! signal, post-fork.
//!
//! A thread may fork while others change the list, and the child then goes on with it as it was at
//! some instant: entries never move, and an entry's address is 0 while the rest of it changes.

use crate::lock::{Guard, Lock, Rank};
use crate::memory;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicUsize, Ordering, compiler_fence};
use sunder_access::PAGE_SIZE as PAGE;

/// A mapping, which is a block.
#[repr(C)]
struct Huge {
    /// The address of the block; 0 for none.
    address: AtomicUsize,
    bytes: AtomicUsize,
}

/// The address in an entry that a thread has taken and is filling in.
const TAKEN: usize = 1;

impl Huge {
    const fn none() -> Self {
        Self {
            address: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
        }
    }

    fn is_at(&self, address: usize) -> bool {
        self.address.load(Ordering::Acquire) == address
    }

    /// Takes a free entry without the lock; returns whether it was free.
    fn take(&self) -> bool {
        let order = Ordering::Relaxed;
        let taken = self.address.compare_exchange(0, TAKEN, order, order);
        taken.is_ok()
    }

    /// Fills the entry in, of which the caller is the only user.
    fn set(&self, address: usize, bytes: usize) {
        self.address.store(TAKEN, Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
        self.bytes.store(bytes, Ordering::Relaxed);
        self.address.store(address, Ordering::Release);
    }

    fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }
}

const ENTRIES: usize = (PAGE - size_of::<usize>()) / size_of::<Huge>();

/// A page with a part of the list. Zeroed memory has no blocks.
#[repr(C)]
struct Part {
    next: *mut Part,
    entries: [Huge; ENTRIES],
}

const _: () = assert!(size_of::<Part>() <= PAGE);

struct Blocks(*mut Part);

// SAFETY: the pointer is to our own memory, which is used only under the lock.
unsafe impl Send for Blocks {}

static BLOCKS: Lock<Blocks> = Lock::new(Rank::Huge, Blocks(null_mut()));

/// Entries for blocks that a signal handler allocates when the list can't be changed. The search goes
/// through them too.
static RESERVE: [Huge; 64] = [const { Huge::none() }; 64];

/// Blocks that were freed in a signal handler when the list could not be changed. If there are more,
/// they stay mapped until the process ends.
static LEFT: [AtomicUsize; 16] = [const { AtomicUsize::new(0) }; 16];

/// The list. `None` as for [`Lock::lock`].
fn blocks() -> Option<Guard<'static, Blocks>> {
    let mut blocks = BLOCKS.lock()?;
    for left in &LEFT {
        if left.load(Ordering::Relaxed) != 0 {
            let address = left.swap(0, Ordering::Relaxed);
            if let Some(bytes) = blocks.remove(address) {
                // SAFETY: the program has freed the block.
                unsafe { memory::give_back(address, bytes) };
            }
        }
    }
    Some(blocks)
}

/// In the child of a fork in which other threads ran. Entries that one of them was filling in are
/// free, and the list is as it was; see the head of this file.
pub fn after_fork() {
    if let Some(blocks) = BLOCKS.take_over() {
        while let Some(entry) = blocks.find(TAKEN) {
            entry.address.store(0, Ordering::Relaxed);
        }
    }
}

impl Blocks {
    /// The entry of the block at `address`. A linear search: blocks are few, because each costs at
    /// least one system call and 32 MiB.
    fn find(&self, address: usize) -> Option<&Huge> {
        self.find_in_list(address)
            .or_else(|| RESERVE.iter().find(|entry| entry.is_at(address)))
    }

    fn find_in_list(&self, address: usize) -> Option<&Huge> {
        let mut part = self.0;
        while !part.is_null() {
            // SAFETY: parts of the list are mapped for ever, and all but `next`, which never
            // changes in a part of the list, is atomic.
            let now = unsafe { &*part };
            if let Some(entry) = now.entries.iter().find(|entry| entry.is_at(address)) {
                return Some(entry);
            }
            part = now.next;
        }
        None
    }

    /// Removes a block; its size in bytes.
    fn remove(&mut self, address: usize) -> Option<usize> {
        let entry = self.find(address)?;
        let bytes = entry.bytes();
        entry.address.store(0, Ordering::Relaxed);
        Some(bytes)
    }

    fn add(&mut self, address: usize, bytes: usize) -> Option<()> {
        if self.find_in_list(0).is_none() {
            let part = memory::take(PAGE)? as *mut Part;
            // SAFETY: a new mapping, which holds one part.
            unsafe { (*part).next = self.0 };
            compiler_fence(Ordering::SeqCst);
            self.0 = part;
        }
        self.find_in_list(0)?.set(address, bytes);
        Some(())
    }
}

/// Notes a new block; `None` if there is no memory for that.
fn add(address: usize, bytes: usize) -> Option<()> {
    match blocks() {
        Some(mut blocks) => blocks.add(address, bytes),
        None => {
            let entry = RESERVE.iter().find(|entry| entry.take())?;
            entry.set(address, bytes);
            Some(())
        }
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
    if add(address, bytes).is_none() {
        // SAFETY: the block was not returned to the program.
        unsafe { memory::give_back(address, bytes) };
        return None;
    }
    Some(address as *mut u8)
}

/// Whether a block can start at `address`. Entries without a block have other addresses.
const fn may_start(address: usize) -> bool {
    address != 0 && address.is_multiple_of(PAGE)
}

/// The size of the block at `address` in bytes, if it is in the list.
pub fn size_of_block(address: usize) -> Option<usize> {
    if !may_start(address) {
        return None;
    }
    let bytes = |blocks: &Blocks| blocks.find(address).map(Huge::bytes);
    match blocks() {
        Some(blocks) => bytes(&blocks),
        None => BLOCKS.peek().and_then(bytes),
    }
}

/// Frees the block at `address`; false if it is not in the list.
pub fn free(address: usize) -> bool {
    if !may_start(address) {
        return false;
    }
    let Some(mut blocks) = blocks() else {
        return leave(address);
    };
    let Some(bytes) = blocks.remove(address) else {
        return false;
    };
    drop(blocks);
    // SAFETY: the program frees the block, and it is not in the list any more.
    unsafe { memory::give_back(address, bytes) };
    true
}

/// Notes a block that can't be freed now; false if it is not in the list.
fn leave(address: usize) -> bool {
    let known = BLOCKS.peek().and_then(|blocks| blocks.find(address));
    if known.is_some() {
        let order = Ordering::Relaxed;
        let _ = LEFT
            .iter()
            .any(|left| left.compare_exchange(0, address, order, order).is_ok());
    }
    known.is_some()
}

/// Resizes the block at `address` without copying and returns its new address. `None` if that is
/// not possible; the block is then unchanged.
///
/// # Safety
/// The program has passed the block to be resized.
pub unsafe fn resize(address: usize, size: usize) -> Option<*mut u8> {
    let bytes = pages(size)?;
    let blocks = may_start(address).then(blocks)??;
    let entry = blocks.find(address)?;
    // A child that is forked meanwhile must not find a block at the old address, where the kernel may
    // map something else.
    let old = entry.bytes();
    entry.set(TAKEN, old);
    // SAFETY: by this function's contract.
    let new = unsafe { memory::resize(address, old, bytes) };
    match new {
        Some(new) => entry.set(new, bytes),
        None => entry.set(address, old),
    }
    new.map(|new| new as *mut u8)
}
