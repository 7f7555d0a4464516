//! From a granule's number to its entry: a hash table for all, and before it a
//! small direct-mapped table for each node of what it touched lately.

use rustc_hash::FxHashMap;

/// Neighbouring granules are found together, because programs touch them
/// together.
const GROUP: u64 = 8;

const NONE: u32 = u32::MAX;

/// The entries of all touched granules.
#[derive(Debug, Default)]
pub(crate) struct Lookup {
    groups: FxHashMap<u64, [u32; GROUP as usize]>,
}

impl Lookup {
    /// The entry of granule `key`, or the place to write its number to.
    pub(crate) fn slot(&mut self, key: u64) -> Result<u32, &mut u32> {
        let group = self
            .groups
            .entry(key / GROUP)
            .or_insert([NONE; GROUP as usize]);
        match &mut group[(key % GROUP) as usize] {
            vacant if *vacant == NONE => Err(vacant),
            slot => Ok(*slot),
        }
    }
}

/// A granule that a node touched lately.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Recent {
    pub(crate) key: u64,
    pub(crate) slot: u32,
    pub(crate) place: u32,
}

/// What each node touched lately. Entries stay true for ever: entries and places
/// never move, except that a place changes its meaning when a line becomes
/// shared, where the first node's stays 0.
#[derive(Debug)]
pub(crate) struct RecentTable {
    entries: Vec<Recent>,
    bits: u32,
}

/// Not the number of any granule: granules have at least 8 bytes.
const NO_KEY: u64 = u64::MAX;

impl RecentTable {
    /// For `nodes` nodes; fewer entries each if they are many.
    pub(crate) fn new(nodes: u32) -> Self {
        let bits = match nodes {
            0..=64 => 8,
            65..=1024 => 6,
            _ => 3,
        };
        let empty = Recent {
            key: NO_KEY,
            slot: 0,
            place: 0,
        };
        Self {
            entries: vec![empty; (nodes as usize) << bits],
            bits,
        }
    }

    #[inline]
    pub(crate) fn at(&mut self, node: u32, key: u64) -> &mut Recent {
        let within = key as usize & ((1 << self.bits) - 1);
        &mut self.entries[(node as usize) << self.bits | within]
    }
}
