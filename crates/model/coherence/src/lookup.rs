//! Finds the entry of a granule by its number: a hash table for all granules, and before it a
//! small direct-mapped table for each node with the granules that it touched recently.

use rustc_hash::FxHashMap;

/// Granules that share one entry of the hash table, because programs touch neighbouring
/// granules together.
const GROUP: u64 = 8;

const NONE: u32 = u32::MAX;

/// The entries of all touched granules.
#[derive(Debug, Default)]
pub(crate) struct Lookup {
    groups: FxHashMap<u64, [u32; GROUP as usize]>,
}

impl Lookup {
    /// The entry of granule `key`, or the place for its index if it has none yet.
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

/// What an access may do without looking at the granule's entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Free {
    /// Neither read nor write.
    Nothing,
    /// Read: the copy is valid and nothing is pending in it.
    Reads,
    /// Read and write: the copy is dirty, and no other node ever touched it.
    All,
}

/// A granule that a node touched recently.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Recent {
    /// The granule's number shifted by two, and two bits: free to read, free to write.
    tagged: u64,
    pub(crate) slot: u32,
    pub(crate) place: u16,
    /// References that were free and are not yet counted with the node and the granule.
    /// Counting them there would fetch the granule's entry for each reference.
    uncounted: u16,
}

impl Recent {
    /// This is no granule's number: granules have at least 8 bytes, so the upper bits of their
    /// numbers are clear.
    const NONE: Self = Self {
        tagged: u64::MAX << 2,
        slot: 0,
        place: 0,
        uncounted: 0,
    };

    pub(crate) const fn new(key: u64, slot: u32, place: u16) -> Self {
        Self {
            tagged: key << 2,
            slot,
            place,
            uncounted: 0,
        }
    }

    /// Counts a reference to granule `key` if it is free, and tells whether it was.
    #[inline]
    pub(crate) const fn pass(&mut self, key: u64, write: bool) -> bool {
        // A granule that is free to write has both bits set, so it is free to read.
        let free = self.tagged >> 2 == key && self.tagged & (1 << write as u32) != 0;
        if free && self.uncounted < u16::MAX {
            self.uncounted += 1;
            return true;
        }
        false
    }

    /// Takes the references that are not counted yet.
    pub(crate) const fn take_uncounted(&mut self) -> u16 {
        std::mem::replace(&mut self.uncounted, 0)
    }

    #[inline]
    pub(crate) const fn is(self, key: u64) -> bool {
        self.tagged >> 2 == key
    }

    #[inline]
    pub(crate) const fn allows(self, write: bool) -> bool {
        self.tagged & (1 << write as u32) != 0
    }
}

/// The granules that each node touched recently. Entries and indices never change, so these
/// records stay valid, except for the free accesses: these end when the copy is lost or a
/// second node comes ([`RecentTable::forget`]).
///
/// A node's table grows with the number of granules that it touches, up to a size that still
/// fits into the caches of the machine that runs the simulation.
#[derive(Debug)]
pub(crate) struct RecentTable {
    nodes: Vec<Entries>,
}

#[derive(Debug)]
struct Entries {
    entries: Box<[Recent]>,
    /// The number of granules that were added since the table has its present size.
    found: usize,
}

/// The number of entries with which a table begins.
const FIRST_ENTRIES: usize = 16;
/// The number of entries up to which a table grows: half a mebibyte.
const MOST_ENTRIES: usize = 1 << 15;

impl RecentTable {
    pub(crate) fn new(nodes: u32) -> Self {
        let empty = || Entries {
            entries: vec![Recent::NONE; FIRST_ENTRIES].into(),
            found: 0,
        };
        Self {
            nodes: (0..nodes).map(|_| empty()).collect(),
        }
    }

    #[inline]
    pub(crate) fn at(&mut self, node: u32, key: u64) -> &mut Recent {
        let entries = &mut self.nodes[node as usize].entries;
        let index = key as usize & (entries.len() - 1);
        &mut entries[index]
    }

    /// Adds a granule that was found in the hash table. After as many additions as the table
    /// has entries, the table is too small and is replaced by a larger, empty one. `gone` is
    /// called with the entries that are dropped.
    pub(crate) fn keep(
        &mut self,
        node: u32,
        key: u64,
        recent: Recent,
        mut gone: impl FnMut(Recent),
    ) {
        let table = &mut self.nodes[node as usize];
        table.found += 1;
        let size = table.entries.len();
        if table.found > size && size < MOST_ENTRIES {
            let larger = vec![Recent::NONE; size * 2].into();
            let old = std::mem::replace(&mut table.entries, larger);
            old.iter().copied().for_each(&mut gone);
            table.found = 0;
        }
        gone(std::mem::replace(self.at(node, key), recent));
    }

    /// All entries, with the indices of their nodes.
    pub(crate) fn all(&mut self) -> impl Iterator<Item = (u32, &mut Recent)> {
        let nodes = (0..).zip(&mut self.nodes);
        nodes.flat_map(|(node, table)| table.entries.iter_mut().map(move |recent| (node, recent)))
    }

    /// Sets what is free.
    #[inline]
    pub(crate) fn free(&mut self, node: u32, key: u64, free: Free) {
        let recent = self.at(node, key);
        recent.tagged = key << 2
            | match free {
                Free::Nothing => 0,
                Free::Reads => 1,
                Free::All => 3,
            };
    }

    /// Marks that nothing is free any more.
    pub(crate) fn forget(&mut self, node: u32, key: u64) {
        let recent = self.at(node, key);
        if recent.is(key) {
            recent.tagged = key << 2;
        }
    }
}
