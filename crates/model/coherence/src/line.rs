//! The record of one granule: which nodes hold it in which state, and the part of its past that
//! the classification needs. Only [`crate::transition`] changes it.
//!
//! Most granules of a program are touched by one node only. Such a granule takes one compact
//! entry; what sharing needs is allocated when a second node comes.

use crate::config::Protocol;
use crate::history::{History, Words};
use crate::lookup::Free;
use crate::observer::{MissKind, Source};
use crate::places::ReplicaSet;
use rustc_hash::FxHashMap;

/// The state of a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// No valid copy.
    Invalid,
    /// Clean; other nodes may have a copy too.
    Shared,
    /// Clean; other nodes may have a copy too, and this one answers for memory (MESIF).
    Forward,
    /// Clean; no other node has a copy.
    Exclusive,
    /// Dirty; no other node has a copy.
    Modified,
}

/// How a replica was last lost, which determines the kind of the next miss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lost {
    /// It was never lost.
    Never,
    Invalidated,
    Replaced,
}

/// One node's copy of a granule. It is kept after the copy is lost.
#[derive(Clone, Debug)]
pub(crate) struct Replica<T> {
    /// While valid, in narrow granules: the words that others wrote since the last essential
    /// miss, or zero once this lifetime is essential. In wide granules all ones or zero. While
    /// invalid: the time of the loss.
    pub(crate) pending: u64,
    /// The time of the last essential miss.
    pub(crate) since: u64,
    pub(crate) source: Source,
    pub(crate) node: u32,
    pub(crate) tag: T,
    pub(crate) state: State,
    pub(crate) lost: Lost,
    /// Whether the miss that brought the copy was a write.
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

    /// The kind of the present lifetime's miss, if the lifetime ends now.
    pub(crate) const fn miss_kind(&self) -> MissKind {
        match (self.lost, self.essential) {
            (Lost::Never, _) => MissKind::Cold,
            (Lost::Replaced, _) => MissKind::Replacement,
            (Lost::Invalidated, true) => MissKind::TrueSharing,
            (Lost::Invalidated, false) => MissKind::FalseSharing,
        }
    }
}

/// The value of `owner` or `forwarder` if there is none.
pub(crate) const NO_REPLICA: usize = usize::MAX;

/// A granule that at least two nodes touched.
#[derive(Debug)]
pub(crate) struct Shared<T> {
    /// In the order in which the nodes came, so that indices never change.
    pub(crate) replicas: Vec<Replica<T>>,
    /// The index of each node, once there are too many for a linear search.
    places: FxHashMap<u32, u32>,
    /// The indices of valid replicas.
    pub(crate) valid: ReplicaSet,
    /// The index of the replica that is exclusive or modified.
    pub(crate) owner: usize,
    /// The index of the replica in forward state.
    pub(crate) forwarder: usize,
    /// The number of changes of the writer so far.
    pub(crate) time: u64,
    /// Narrow granules: the words that the owner wrote and that are not in the history yet.
    pub(crate) written: u64,
    pub(crate) history: History,
    pub(crate) tally: SharedTally,
}

/// Counts that only shared granules have.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SharedTally {
    pub(crate) true_sharing: u64,
    pub(crate) false_sharing: u64,
    pub(crate) false_by_first_access: u64,
    pub(crate) invalidations: u64,
    pub(crate) hitm: u64,
    pub(crate) forwards: u64,
}

/// The most replicas for which a linear search is used.
const LINEAR_SEARCH: usize = 8;

impl<T: Copy> Shared<T> {
    /// `first` was the only node until now. Its past writes never matter: any later node begins
    /// with a cold miss, which brings them.
    pub(crate) fn new(first: Replica<T>, narrow: bool) -> Self {
        let mut shared = Self {
            replicas: Vec::with_capacity(2),
            places: FxHashMap::default(),
            valid: ReplicaSet::default(),
            owner: NO_REPLICA,
            forwarder: NO_REPLICA,
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

    /// The index of `node`'s replica.
    pub(crate) fn place(&self, node: u32) -> Option<usize> {
        if self.replicas.len() <= LINEAR_SEARCH {
            return self.replicas.iter().position(|r| r.node == node);
        }
        self.places.get(&node).map(|&place| place as usize)
    }

    /// Adds a replica for a node that has none.
    pub(crate) fn push(&mut self, replica: Replica<T>) -> usize {
        let place = self.replicas.len();
        let node = replica.node;
        self.replicas.push(replica);
        if place == LINEAR_SEARCH {
            let nodes = self.replicas.iter().map(|replica| replica.node);
            self.places = nodes.zip(0..).collect();
        } else if place > LINEAR_SEARCH {
            self.places.insert(node, place as u32);
        }
        place
    }

    /// A read or write that needs no request. `false` if it needs one; then nothing is changed.
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
            // What others wrote must be looked up before it is overwritten.
            self.settle(place, words);
            self.write(place, words, total);
        } else if replica.state == State::Invalid {
            return false;
        } else {
            self.settle(place, words);
        }
        true
    }

    /// What the node at `place` may do without looking at this entry. Never write: others may
    /// need what it writes.
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

    /// Marks the lifetime at `place` as essential if one of `words` is pending.
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
    /// The invariants between any two accesses.
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
        assert_eq!(owners == 1, self.owner != NO_REPLICA);
        assert_eq!(forwarders == 1, self.forwarder != NO_REPLICA);
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

/// The nodes that touched the granule.
#[derive(Debug)]
pub(crate) enum Body<T> {
    /// One node.
    Alone(Replica<T>),
    /// Several.
    Shared(Box<Shared<T>>),
}

/// Counts that all granules have. They stop at their maximum.
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
    fn places_are_found_in_any_insertion_order() {
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
