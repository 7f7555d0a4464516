//! A heap's bins, by the properties that a policy distinguishes: a hash table in a mapping of its
//! own. Bins are never removed, so that spans may point to them. Contexts: pre-init, normal,
//! post-fork.

use crate::memory;
use crate::span::Bin;

/// The common properties of the blocks of a bin.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Key {
    /// The call site, or 0 if the policy does not distinguish sites.
    pub site: u64,
    /// The size as the policy sees it, combined with the alignment where that matters.
    pub size: u64,
}

/// A bit of [`Key::site`] that marks padded objects.
pub const PADDED: u64 = 1 << 63;
/// Represents all call sites that are listed to be padded.
pub const LISTED: u64 = u64::MAX;

impl Key {
    /// The return address of the one call that it stands for; 0 if there is none.
    const fn call_site(self) -> u64 {
        if self.site == LISTED {
            return 0;
        }
        self.site & !PADDED
    }
}

#[repr(C)]
struct Entry {
    key: Key,
    bin: *mut Bin,
}

/// The table. Zeroed memory is a table without bins.
#[repr(C)]
pub struct Table {
    entries: *mut Entry,
    /// The number of entries: a power of two, or 0.
    capacity: usize,
    len: usize,
    /// Memory for more bins.
    spare: *mut Bin,
    spare_len: usize,
}

const FIRST_CAPACITY: usize = 64;
/// Bytes of memory for new bins that are taken at a time: a page.
const CHUNK: usize = 4 << 10;
/// Bytes that a bin takes here: itself, and two entries, of which half are empty.
pub const BYTES_OF_BIN: usize = size_of::<Bin>() + 2 * size_of::<Entry>();

const fn hash(key: Key) -> usize {
    let mixed = (key.site ^ key.size.rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ mixed >> 29) as usize
}

impl Table {
    /// The bin for `key`, if it was made.
    ///
    /// # Safety
    /// The heap's owner calls.
    pub unsafe fn find(&self, key: Key) -> Option<*mut Bin> {
        if self.capacity == 0 {
            return None;
        }
        // SAFETY: the table is allocated.
        let bin = unsafe { (*self.entry(key)).bin };
        (!bin.is_null()).then_some(bin)
    }

    /// Bytes of memory that the bins take.
    pub const fn bytes(&self) -> usize {
        self.len * BYTES_OF_BIN
    }

    /// Makes the bin for `key`, with blocks of `block` bytes; `None` if there is no memory.
    ///
    /// # Safety
    /// The heap's owner calls, and the key has no bin.
    pub unsafe fn make(&mut self, key: Key, block: usize) -> Option<*mut Bin> {
        if (self.len + 1) * 2 > self.capacity {
            self.grow()?;
        }
        let bin = self.new_bin()?;
        // SAFETY: new memory for the bin, and a free entry.
        unsafe {
            *bin = Bin {
                block,
                site: key.call_site(),
                ..Bin::EMPTY
            };
            *self.entry(key) = Entry { key, bin };
        }
        self.len += 1;
        Some(bin)
    }

    /// The entry in which `key` is or belongs.
    fn entry(&self, key: Key) -> *mut Entry {
        let mut at = hash(key) & (self.capacity - 1);
        loop {
            let entry = self.entries.wrapping_add(at);
            // SAFETY: the entry is within the table, which is never full.
            let there = unsafe { &*entry };
            if there.bin.is_null() || there.key == key {
                return entry;
            }
            at = (at + 1) & (self.capacity - 1);
        }
    }

    fn grow(&mut self) -> Option<()> {
        let capacity = (self.capacity * 2).max(FIRST_CAPACITY);
        let new = memory::take(capacity * size_of::<Entry>())? as *mut Entry;
        let (old, old_capacity) = (self.entries, self.capacity);
        (self.entries, self.capacity) = (new, capacity);
        for i in 0..old_capacity {
            // SAFETY: within the old table; the new one has room for all its entries.
            unsafe {
                let entry = old.wrapping_add(i);
                if !(*entry).bin.is_null() {
                    self.entry((*entry).key).copy_from(entry, 1);
                }
            }
        }
        if old_capacity > 0 {
            // SAFETY: nothing points into the old table any more.
            unsafe { memory::give_back(old as usize, old_capacity * size_of::<Entry>()) };
        }
        Some(())
    }

    fn new_bin(&mut self) -> Option<*mut Bin> {
        if self.spare_len == 0 {
            self.spare = memory::take(CHUNK)? as *mut Bin;
            self.spare_len = CHUNK / size_of::<Bin>();
        }
        let bin = self.spare;
        self.spare = self.spare.wrapping_add(1);
        self.spare_len -= 1;
        Some(bin)
    }

    /// Calls a function with every bin.
    pub fn each(&self, mut with: impl FnMut(*mut Bin)) {
        for i in 0..self.capacity {
            // SAFETY: the index is within the table.
            let bin = unsafe { (*self.entries.wrapping_add(i)).bin };
            if !bin.is_null() {
                with(bin);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_keeps_its_bin_while_the_table_grows() {
        // SAFETY: plain data, for which zeroes are valid.
        let mut table: Table = unsafe { core::mem::zeroed() };
        let keys = (0..2000).map(|i| Key {
            site: i % 40,
            size: i / 40,
        });
        // SAFETY: only this thread uses the table.
        let bins: Vec<_> = keys
            .clone()
            .map(|key| unsafe { table.make(key, 16) }.expect("memory"))
            .collect();
        for (key, bin) in keys.zip(&bins) {
            // SAFETY: only this thread uses the table.
            assert_eq!(unsafe { table.find(key) }, Some(*bin));
        }
        let mut count = 0;
        table.each(|_| count += 1);
        assert_eq!(count, 2000);
    }
}
