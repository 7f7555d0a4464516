//! Counts misses by page, object, instruction and thread, as the simulator tells of them.
//! A miss on a page that another node took away is put down to two: what the missing
//! access touched, and what the write touched that destroyed the copy.

use rustc_hash::FxHashMap;
use sunder_access::{Access, CodeAddress, Kind, ThreadId};
use sunder_coherence::{Invalidation, Miss, MissKind, Observer, Source, Upgrade};
use sunder_findings::Simulated;

/// What an access is counted as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag {
    /// Of [`Counting::parts`].
    pub part: u32,
    /// Of [`Counting::sites`].
    pub site: u32,
}

/// An access of which nothing is told.
pub const UNTOLD: Tag = Tag {
    part: u32::MAX,
    site: u32::MAX,
};

/// Misses because another node wrote.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Misses {
    /// For new values.
    pub truly: u64,
    /// For nothing.
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

/// What an object has on one page.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    /// The page's first byte.
    pub page: u64,
    /// Whose it is.
    pub subject: u32,
    /// What happened there; misses because another wrote are in [`Counting::pairs`].
    pub counts: Simulated,
}

/// An instruction of one thread that touches one object.
#[derive(Clone, Copy, Debug)]
pub struct Site {
    /// Whose data it touches.
    pub subject: u32,
    /// The instruction.
    pub instruction: CodeAddress,
    /// What it does.
    pub kind: Kind,
    /// Whose instruction it is.
    pub thread: ThreadId,
    /// How often it did.
    pub accesses: u64,
}

/// See the module's head.
#[derive(Debug, Default)]
pub struct Counting {
    /// Parts of pages.
    pub parts: Vec<Part>,
    /// Instructions.
    pub sites: Vec<Site>,
    /// Misses by page, by the object that was asked for and the one that was written.
    pub pairs: FxHashMap<(u64, u32, u32), Misses>,
    /// Misses of a site for the sake of a write to an object.
    pub missed: FxHashMap<(u32, u32), Misses>,
    /// How many copies a site's writes destroyed that had been asked for an object.
    pub destroyed: FxHashMap<(u32, u32), u64>,
    part_of: FxHashMap<(u64, u32), u32>,
    site_of: FxHashMap<(u32, CodeAddress, Kind, ThreadId), u32>,
    /// What took the page away from a node last.
    cause: FxHashMap<(u64, u32), Tag>,
}

impl Counting {
    /// The tag of an access to `subject` on the page at `page`.
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

    // A miss is told when its copy is lost, before the write that took it; so the cause
    // that is known then is what took the copy before it.
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

    /// Two threads in turn, each on an object of its own on one page; then the second
    /// reads what the first wrote.
    #[test]
    fn a_miss_is_put_down_to_what_was_asked_for_and_what_was_written() {
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
        // Node 1's copy is there; node 0 takes it, and node 1 comes for the new value.
        step(0, 7, 0x1000, Kind::Write);
        step(1, 7, 0x1000, Kind::Read);
        let counted = simulator.finish().into_observer();
        let pair = |asked, written| {
            let found = counted.pairs.get(&(0x1000, asked, written));
            found.copied().unwrap_or_default()
        };
        // Ten writes of node 0 after its first, nine of node 1.
        let falsely = |falsely| Misses { truly: 0, falsely };
        assert_eq!((pair(7, 9), pair(9, 7)), (falsely(10), falsely(9)));
        // Asked for and written is the same object.
        let truly = Misses {
            truly: 1,
            falsely: 0,
        };
        assert_eq!((pair(7, 7), pair(9, 9)), (truly, Misses::default()));
        let cold: u64 = counted.parts.iter().map(|p| p.counts.cold).sum();
        assert_eq!(cold, 2);
    }
}
