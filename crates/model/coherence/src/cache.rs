//! Private caches of limited size: which granules a node has room for. They keep entries and
//! their order of use; the state of a copy is not their concern.

use crate::config::{CacheSize, Caches};

/// The value of an empty entry.
const EMPTY: u32 = u32::MAX;

/// One level of one node's caches: sets of entries, the most recently used first, empty entries
/// last.
#[derive(Debug)]
struct Level {
    entries: Vec<u32>,
    ways: usize,
    sets: u64,
}

impl Level {
    fn new(size: CacheSize, granule: u64) -> Self {
        let ways = size.ways as usize;
        let granules = size.bytes / granule;
        Self {
            entries: vec![EMPTY; granules as usize],
            ways,
            sets: granules / u64::from(size.ways),
        }
    }

    fn set(&mut self, key: u64) -> &mut [u32] {
        let index = if self.sets.is_power_of_two() {
            key & (self.sets - 1)
        } else {
            key % self.sets
        };
        let start = index as usize * self.ways;
        &mut self.entries[start..start + self.ways]
    }

    /// Makes `slot` the most recently used, if the level has it.
    fn find(&mut self, key: u64, slot: u32) -> bool {
        let set = self.set(key);
        if set[0] == slot {
            return true;
        }
        let Some(way) = set.iter().position(|&entry| entry == slot) else {
            return false;
        };
        set[..=way].rotate_right(1);
        true
    }

    /// Adds `slot`, which must not be there, and returns the entry that was replaced.
    fn fill(&mut self, key: u64, slot: u32) -> Option<u32> {
        let set = self.set(key);
        let last = set[set.len() - 1];
        set.rotate_right(1);
        set[0] = slot;
        (last != EMPTY).then_some(last)
    }

    fn remove(&mut self, key: u64, slot: u32) {
        let set = self.set(key);
        if let Some(way) = set.iter().position(|&entry| entry == slot) {
            set[way..].rotate_left(1);
            set[set.len() - 1] = EMPTY;
        }
    }
}

/// The levels of one node.
#[derive(Debug)]
struct Private {
    first: Level,
    second: Option<Level>,
}

/// What an access to a granule did to the caches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Touched {
    /// Whether the granule was in the first level.
    pub(crate) first_level: bool,
    /// The granule that was replaced in the node to make room.
    pub(crate) replaced: Option<u32>,
}

/// The caches of all nodes. Those of a node are allocated at its first access.
#[derive(Debug)]
pub(crate) struct PrivateCaches {
    nodes: Vec<Option<Box<Private>>>,
    l1: CacheSize,
    l2: Option<CacheSize>,
    granule: u64,
}

impl PrivateCaches {
    /// `None` for infinite caches. The sizes must have been checked.
    pub(crate) fn new(caches: Caches, granule: u64, nodes: u32) -> Option<Self> {
        let Caches::Private { l1, l2 } = caches else {
            return None;
        };
        Some(Self {
            nodes: (0..nodes).map(|_| None).collect(),
            l1,
            l2,
            granule,
        })
    }

    /// `node` accesses the granule `key` with entry `slot`, and has it afterwards. `key_of`
    /// gives the number of an entry's granule.
    pub(crate) fn touch(
        &mut self,
        node: u32,
        key: u64,
        slot: u32,
        key_of: impl Fn(u32) -> u64,
    ) -> Touched {
        let (l1, l2, granule) = (self.l1, self.l2, self.granule);
        let private = self.nodes[node as usize].get_or_insert_with(|| {
            Box::new(Private {
                first: Level::new(l1, granule),
                second: l2.map(|size| Level::new(size, granule)),
            })
        });
        let first_level = private.first.find(key, slot);
        let mut replaced = None;
        if !first_level {
            if let Some(second) = &mut private.second {
                if !second.find(key, slot) {
                    replaced = second.fill(key, slot);
                }
                if let Some(gone) = replaced {
                    private.first.remove(key_of(gone), gone);
                }
                // A granule that only leaves the first level stays in the second.
                private.first.fill(key, slot);
            } else {
                replaced = private.first.fill(key, slot);
            }
        }
        Touched {
            first_level,
            replaced,
        }
    }

    /// Removes the granule, which `node` has lost.
    pub(crate) fn remove(&mut self, node: u32, key: u64, slot: u32) {
        if let Some(private) = &mut self.nodes[node as usize] {
            private.first.remove(key, slot);
            if let Some(second) = &mut private.second {
                second.remove(key, slot);
            }
        }
    }

    /// Whether `node` has the granule, at the level that keeps coherence. For checks of
    /// invariants.
    pub(crate) fn holds(&mut self, node: u32, key: u64, slot: u32) -> bool {
        let Some(private) = &mut self.nodes[node as usize] else {
            return false;
        };
        let in_first = private.first.set(key).contains(&slot);
        match &mut private.second {
            Some(second) => {
                let in_second = second.set(key).contains(&slot);
                assert!(
                    in_second || !in_first,
                    "the second level includes the first"
                );
                in_second
            }
            None => in_first,
        }
    }
}
