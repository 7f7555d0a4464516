//! Counts misses by page, object, instruction and thread, from the simulator's reports. A miss
//! on a page that another node took away is attributed to two accesses: the one that missed,
//! and the write that invalidated the copy.

use rustc_hash::FxHashMap;
use sunder_access::{Access, CodeAddress, Kind, ThreadId};
use sunder_coherence::{Invalidation, Miss, MissKind, Observer, Source, Upgrade};
use sunder_findings::Simulated;

/// The part and the site that an access is counted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag {
    /// An index into [`Counting::parts`].
    pub part: u32,
    /// An index into [`Counting::sites`].
    pub site: u32,
}

/// The tag of an access that is not counted.
pub const UNCOUNTED: Tag = Tag {
    part: u32::MAX,
    site: u32::MAX,
};

/// Misses because another node had written to the page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Misses {
    /// The missing access needs a value that was written.
    pub truly: u64,
    /// The missing access needs no written value: false sharing.
    pub falsely: u64,
}

impl Misses {
    /// Adds `other`.
    pub fn add(&mut self, other: Self) {
        self.truly += other.truly;
        self.falsely += other.falsely;
    }

    /// All of them.
    pub const fn all(self) -> u64 {
        self.truly + self.falsely
    }
}

/// An object's share of one page.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    /// The page's first byte.
    pub page: u64,
    /// The object's number.
    pub subject: u32,
    /// The counts of its accesses. Misses because another node wrote are in
    /// [`Counting::pairs`].
    pub counts: Simulated,
}

/// An instruction that accesses one object in one thread.
#[derive(Clone, Copy, Debug)]
pub struct Site {
    /// The object's number.
    pub subject: u32,
    /// The instruction.
    pub instruction: CodeAddress,
    /// What it does.
    pub kind: Kind,
    /// The thread.
    pub thread: ThreadId,
    /// The number of accesses.
    pub accesses: u64,
}

/// The counts, filled by the simulator.
#[derive(Debug, Default)]
pub struct Counting {
    /// Parts of pages.
    pub parts: Vec<Part>,
    /// Instructions.
    pub sites: Vec<Site>,
    /// Misses by page, object that was accessed, and object that was written.
    pub pairs: FxHashMap<(u64, u32, u32), Misses>,
    /// Misses by site and object that was written.
    pub missed: FxHashMap<(u32, u32), Misses>,
    /// Copies that a site's writes invalidated, by site and object that had been accessed in
    /// them.
    pub destroyed: FxHashMap<(u32, u32), u64>,
    part_of: FxHashMap<(u64, u32), u32>,
    site_of: FxHashMap<(u32, CodeAddress, Kind, ThreadId), u32>,
    /// The access that last took the page away from a node.
    cause: FxHashMap<(u64, u32), Tag>,
}

impl Counting {
    /// The tag of an access to `subject` on the page that starts at `page`.
    pub fn tag(&mut self, page: u64, subject: u32, access: &Access) -> Tag {
        let parts = &mut self.parts;
        let part = *self.part_of.entry((page, subject)).or_insert_with(|| {
            parts.push(Part {
                page,
                subject,
                counts: Simulated::default(),
            });
            parts.len() as u32 - 1
        });
        let sites = &mut self.sites;
        let key = (subject, access.instruction, access.kind, access.thread);
        let site = *self.site_of.entry(key).or_insert_with(|| {
            sites.push(Site {
                subject,
                instruction: access.instruction,
                kind: access.kind,
                thread: access.thread,
                accesses: 0,
            });
            sites.len() as u32 - 1
        });
        self.parts[part as usize].counts.references += 1;
        self.sites[site as usize].accesses += 1;
        Tag { part, site }
    }

    fn counts(&mut self, tag: Tag) -> Option<&mut Simulated> {
        let part = self.parts.get_mut(tag.part as usize)?;
        Some(&mut part.counts)
    }

    fn subject(&self, tag: Tag) -> Option<u32> {
        self.parts.get(tag.part as usize).map(|part| part.subject)
    }

    fn moved(&mut self, miss: &Miss<Tag>, misses: Misses) {
        let cause = self.cause.get(&(miss.line.0, miss.node)).copied();
        let (Some(asked), Some(written)) = (
            self.subject(miss.tag),
            cause.and_then(|cause| self.subject(cause)),
        ) else {
            return;
        };
        let pair = (miss.line.0, asked, written);
        self.pairs.entry(pair).or_default().add(misses);
        let site = (miss.tag.site, written);
        self.missed.entry(site).or_default().add(misses);
    }
}

impl Observer for Counting {
    type Tag = Tag;

    // The simulator reports a miss when the copy that it brought is lost, before it reports the
    // write that took that copy. So `cause` still holds the write that took the copy before.
    fn miss(&mut self, miss: &Miss<Tag>) {
        let Some(counts) = self.counts(miss.tag) else {
            return;
        };
        counts.hitm += u64::from(matches!(miss.source, Source::Dirty(_)));
        let misses = match miss.kind {
            MissKind::Cold => {
                counts.cold += 1;
                return;
            }
            MissKind::Replacement => {
                counts.replacement += 1;
                return;
            }
            MissKind::TrueSharing => Misses {
                truly: 1,
                falsely: 0,
            },
            MissKind::FalseSharing => Misses {
                truly: 0,
                falsely: 1,
            },
        };
        counts.true_sharing += misses.truly;
        counts.false_sharing += misses.falsely;
        self.moved(miss, misses);
    }

    fn upgrade(&mut self, upgrade: &Upgrade<Tag>) {
        if let Some(counts) = self.counts(upgrade.tag) {
            counts.upgrades += 1;
        }
    }

    fn invalidation(&mut self, end: &Invalidation<Tag>) {
        if let Some(counts) = self.counts(end.tag) {
            counts.invalidations += 1;
        }
        if let (Some(victim), Some(_)) = (self.subject(end.victim_tag), self.subject(end.tag)) {
            *self.destroyed.entry((end.tag.site, victim)).or_default() += 1;
        }
        self.cause.insert((end.line.0, end.victim), end.tag);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sunder_access::{Address, Provenance, Time};
    use sunder_coherence::{Config, Simulator};

    fn access(thread: u32, address: u64, kind: Kind) -> Access {
        Access {
            time: Time(0),
            thread: ThreadId(thread),
            instruction: CodeAddress(0x10),
            address: Address(address),
            width: 8,
            kind,
            provenance: Provenance::Traced,
            weight: 1.0,
        }
    }

    /// Two threads write in turn, each to its own object on one page. Then the second reads
    /// what the first wrote.
    #[test]
    fn a_miss_counts_for_the_accessed_and_the_written_object() {
        let config = Config::new(4096, 2);
        let mut simulator = Simulator::with_observer(config, Counting::default()).expect("fits");
        let mut step = |thread: u32, subject: u32, address: u64, kind: Kind| {
            let access = access(thread, address, kind);
            let tag = simulator.observer_mut().tag(0x1000, subject, &access);
            let done = simulator.access(thread, Address(address), 8, kind, tag);
            done.expect("a machine of two nodes");
        };
        for _ in 0..10 {
            step(0, 7, 0x1000, Kind::Write);
            step(1, 9, 0x1800, Kind::Write);
        }
        // Node 1 has a copy; node 0 takes the page, and node 1 misses to read the new value.
        step(0, 7, 0x1000, Kind::Write);
        step(1, 7, 0x1000, Kind::Read);
        let counted = simulator.finish().into_observer();
        let pair = |asked, written| {
            let found = counted.pairs.get(&(0x1000, asked, written));
            found.copied().unwrap_or_default()
        };
        // Ten writes of node 0 after its first one, nine of node 1.
        let falsely = |falsely| Misses { truly: 0, falsely };
        assert_eq!((pair(7, 9), pair(9, 7)), (falsely(10), falsely(9)));
        // The object that was accessed is the one that was written.
        let truly = Misses {
            truly: 1,
            falsely: 0,
        };
        assert_eq!((pair(7, 7), pair(9, 9)), (truly, Misses::default()));
        let cold: u64 = counted.parts.iter().map(|p| p.counts.cold).sum();
        assert_eq!(cold, 2);
    }
}
