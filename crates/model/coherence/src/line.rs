//! What is known of one granule: who holds it in which state, and what of its
//! past the classification needs. Changed by `transition` alone.
//!
//! Most granules of a program are touched by one node only. They take one
//! compact entry; what sharing needs is allocated when a second node comes.

use crate::config::Protocol;
use crate::history::{History, Words};
use crate::lookup::Free;
use crate::observer::{MissKind, Source};
use crate::places::Places;

/// The state of a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// No valid copy.
    Invalid,
    /// Clean, and others may have it too.
    Shared,
    /// Clean, others may have it, and this one answers for memory (MESIF).
    Forward,
    /// Clean, and nobody else has it.
    Exclusive,
    /// Dirty, and nobody else has it.
    Modified,
}

/// How a replica was lost last: what the next miss is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lost {
    /// There was none yet.
    Never,
    Invalidated,
    Replaced,
}

/// One node's copy of a granule, also after it was lost.
#[derive(Clone, Debug)]
pub(crate) struct Replica<T> {
    /// While valid, in narrow granules: the words that others wrote since the last
    /// essential miss, zero once this lifetime is essential. In wide granules all
    /// ones or zero. While invalid: the time of the loss.
    pub(crate) pending: u64,
    /// The time of the last essential miss.
    pub(crate) since: u64,
    pub(crate) source: Source,
    pub(crate) node: u32,
    pub(crate) tag: T,
    pub(crate) state: State,
    pub(crate) lost: Lost,
    /// Whether the miss that brought it wrote.
    pub(crate) write: bool,
    /// Whether this lifetime is known to be essential.
    pub(crate) essential: bool,
}

impl<T: Copy> Replica<T> {
    pub(crate) const fn new(node: u32, tag: T) -> Self {
        Self {
            pending: 0,
            since: 0,
            source: Source::Memory,
            node,
            tag,
            state: State::Invalid,
            lost: Lost::Never,
            write: false,
            essential: false,
        }
    }

    /// What the miss of the current lifetime is, if the lifetime ends now.
    pub(crate) const fn miss_kind(&self) -> MissKind {
        match (self.lost, self.essential) {
            (Lost::Never, _) => MissKind::Cold,
            (Lost::Replaced, _) => MissKind::Replacement,
            (Lost::Invalidated, true) => MissKind::TrueSharing,
            (Lost::Invalidated, false) => MissKind::FalseSharing,
        }
    }
}

/// No owner, no forwarder.
pub(crate) const NOBODY: usize = usize::MAX;

/// A granule that at least two nodes touched.
#[derive(Debug)]
pub(crate) struct Shared<T> {
    /// In the order in which the nodes came, so that places never change.
    pub(crate) replicas: Vec<Replica<T>>,
    /// Nodes with their places, ascending, once there are too many to search one by one.
    order: Vec<(u32, u32)>,
    /// The places of valid replicas.
    pub(crate) valid: Places,
    /// The place that holds it exclusive or modified.
    pub(crate) owner: usize,
    /// The place that holds it in forward state.
    pub(crate) forwarder: usize,
    /// Changes of writer so far.
    pub(crate) time: u64,
    /// Narrow granules: what the owner wrote that is not yet in the history.
    pub(crate) written: u64,
    pub(crate) history: History,
    pub(crate) tally: SharedTally,
}

/// What is counted of shared granules only.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SharedTally {
    pub(crate) true_sharing: u64,
    pub(crate) false_sharing: u64,
    pub(crate) false_by_first_access: u64,
    pub(crate) invalidations: u64,
    pub(crate) hitm: u64,
    pub(crate) forwards: u64,
}

/// Up to here replicas are searched one by one.
const FEW: usize = 8;

impl<T: Copy> Shared<T> {
    /// `first` was alone until now. Its past writes never matter: whoever comes
    /// later starts with a cold miss, which brings them.
    pub(crate) fn new(first: Replica<T>, narrow: bool) -> Self {
        let mut shared = Self {
            replicas: Vec::with_capacity(2),
            order: Vec::new(),
            valid: Places::default(),
            owner: NOBODY,
            forwarder: NOBODY,
            time: 1,
            written: 0,
            history: History::new(narrow),
            tally: SharedTally::default(),
        };
        match first.state {
            State::Exclusive | State::Modified => shared.owner = 0,
            State::Forward => shared.forwarder = 0,
            State::Invalid | State::Shared => {}
        }
        if first.state != State::Invalid {
            shared.valid.insert(0);
        }
        shared.replicas.push(first);
        shared
    }

    /// Where `node`'s replica is.
    pub(crate) fn place(&self, node: u32) -> Option<usize> {
        if self.replicas.len() <= FEW {
            return self.replicas.iter().position(|r| r.node == node);
        }
        let found = self.order.binary_search_by_key(&node, |&(node, _)| node);
        found.ok().map(|index| self.order[index].1 as usize)
    }

    /// Adds a replica for a node that has none.
    pub(crate) fn push(&mut self, replica: Replica<T>) -> usize {
        let place = self.replicas.len();
        let node = replica.node;
        self.replicas.push(replica);
        if place == FEW {
            let nodes = self.replicas.iter().map(|replica| replica.node);
            self.order = nodes.zip(0..).collect();
            self.order.sort_unstable();
        } else if place > FEW {
            let index = self.order.partition_point(|&(other, _)| other < node);
            self.order.insert(index, (node, place as u32));
        }
        place
    }

    /// A read or write that needs nobody else. False if it must be asked for;
    /// nothing is changed then.
    #[inline]
    pub(crate) fn hit(&mut self, place: usize, words: Words, write: bool, total: u32) -> bool {
        let replica = &mut self.replicas[place];
        if write {
            match replica.state {
                State::Modified => {}
                State::Exclusive => {
                    replica.state = State::Modified;
                    self.time += 1;
                }
                _ => return false,
            }
            // What others wrote must be looked for before it is overwritten.
            self.settle(place, words);
            self.write(place, words, total);
        } else if replica.state == State::Invalid {
            return false;
        } else {
            self.settle(place, words);
        }
        true
    }

    /// What the node at `place` may do unseen. Never write: others may miss what it
    /// wrote.
    #[inline]
    pub(crate) fn free(&self, place: usize) -> Free {
        let replica = &self.replicas[place];
        if replica.state != State::Invalid && replica.pending == 0 {
            Free::Reads
        } else {
            Free::Nothing
        }
    }

    /// The owner at `place` writes.
    #[inline]
    pub(crate) fn write(&mut self, place: usize, words: Words, total: u32) {
        self.written |= words.mask;
        if total > 64 {
            let node = self.replicas[place].node;
            self.history.stamp(words, self.time, node, total);
        }
    }

    /// If one of `words` is pending, the lifetime at `place` is essential.
    #[inline]
    pub(crate) fn settle(&mut self, place: usize, words: Words) {
        let replica = &mut self.replicas[place];
        if replica.pending & words.mask == 0 {
            return;
        }
        if matches!(self.history, History::Wide(_))
            && !self
                .history
                .foreign_within(words, replica.node, replica.since)
        {
            return;
        }
        replica.essential = true;
        replica.pending = 0;
        replica.since = self.time;
    }
}

impl<T> Shared<T> {
    /// What must hold between any two accesses.
    pub(crate) fn check_invariants(&self, protocol: Protocol) {
        let in_state = |state| {
            let found = self.replicas.iter().filter(|r| r.state == state);
            found.count()
        };
        let owners = in_state(State::Modified) + in_state(State::Exclusive);
        let forwarders = in_state(State::Forward);
        let valid = self.replicas.len() - in_state(State::Invalid);
        assert!(owners <= 1, "one owner at most");
        assert!(owners == 0 || valid == 1, "an owner is alone");
        assert!(forwarders <= usize::from(protocol == Protocol::Mesif));
        assert_eq!(owners == 1, self.owner != NOBODY);
        assert_eq!(forwarders == 1, self.forwarder != NOBODY);
        assert!(in_state(State::Exclusive) == 0 || protocol != Protocol::Msi);
        assert_eq!(self.valid.iter().count(), valid);
        for place in self.valid.iter() {
            assert_ne!(self.replicas[place].state, State::Invalid);
        }
        for (place, replica) in self.replicas.iter().enumerate() {
            let owns = matches!(replica.state, State::Modified | State::Exclusive);
            assert_eq!(owns, self.owner == place);
            let written = self.written != 0 && self.owner == place;
            assert!(!written || replica.state == State::Modified);
        }
    }
}

/// Who touched the granule.
#[derive(Debug)]
pub(crate) enum Body<T> {
    /// One node.
    Alone(Replica<T>),
    /// Several.
    Shared(Box<Shared<T>>),
}

/// What is counted of all granules. These counts stop at their maximum.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) replacement: u32,
    pub(crate) write_backs: u32,
    pub(crate) upgrades: u32,
    pub(crate) write_misses: u32,
}

/// One touched granule.
#[derive(Debug)]
pub(crate) struct Line<T> {
    /// Its address divided by its size.
    pub(crate) key: u64,
    pub(crate) references: u64,
    pub(crate) tally: Tally,
    pub(crate) body: Body<T>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_granule_of_one_node_takes_one_cache_line() {
        assert!(size_of::<Line<()>>() <= 64);
        assert!(size_of::<Line<(u32, u32)>>() <= 72);
    }

    #[test]
    fn places_are_found_whatever_the_order_of_coming() {
        let mut shared = Shared::new(Replica::new(500, ()), true);
        let nodes: Vec<u32> = (0..40).map(|i| i * 37 % 41).collect();
        for (place, &node) in nodes.iter().enumerate() {
            assert_eq!(shared.place(node), None);
            assert_eq!(shared.push(Replica::new(node, ())), place + 1);
        }
        for (place, &node) in nodes.iter().enumerate() {
            assert_eq!(shared.place(node), Some(place + 1));
        }
        assert_eq!(shared.place(500), Some(0));
        assert_eq!(shared.place(501), None);
    }
}
