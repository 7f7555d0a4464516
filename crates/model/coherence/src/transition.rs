//! The protocols: what a miss, an upgrade and a replacement do to a granule's replicas, and
//! where each is counted. Called by the simulator for everything that is not a plain hit.
//!
//! - A read of another node's dirty copy leaves both with clean shared copies and writes the
//!   data to memory. A write takes the dirty data over, and memory stays stale.
//! - Clean data come from memory; with MESIF, from the exclusive or the forwarding copy. The
//!   latest reader becomes the forwarder.
//! - If the forwarder or the owner is replaced, no other node takes its place: the next request
//!   goes to memory.

use crate::cache::PrivateCaches;
use crate::config::Protocol;
use crate::counts::Counts;
use crate::history::{History, Words};
use crate::line::{Body, Line, Lost, NO_REPLICA, Replica, Shared, State, Tally};
use crate::lookup::RecentTable;
use crate::observer::{End, Invalidation, Miss, MissKind, Observer, Source, Upgrade};
use sunder_access::Address;

/// One reference that is not a plain hit.
pub(crate) struct Request<T> {
    pub(crate) slot: u32,
    pub(crate) place: usize,
    pub(crate) node: u32,
    pub(crate) words: Words,
    pub(crate) write: bool,
    pub(crate) tag: T,
}

/// What a transition may change besides the granule itself.
pub(crate) struct Bus<'a, O: Observer> {
    pub(crate) protocol: Protocol,
    /// Binary logarithm of the granule's bytes.
    pub(crate) granule_bits: u32,
    /// Words of a granule.
    pub(crate) words: u32,
    pub(crate) nodes: &'a mut [Counts],
    pub(crate) recent: &'a mut RecentTable,
    pub(crate) caches: &'a mut Option<PrivateCaches>,
    pub(crate) observer: &'a mut O,
}

impl<O: Observer> Bus<'_, O> {
    const fn base(&self, key: u64) -> Address {
        Address(key << self.granule_bits)
    }

    /// A miss, an upgrade, or the first write to an exclusive copy.
    pub(crate) fn request(&mut self, line: &mut Line<O::Tag>, request: &Request<O::Tag>) {
        let key = line.key;
        match &mut line.body {
            Body::Alone(replica) => self.alone(key, &mut line.tally, replica, request),
            Body::Shared(shared) => {
                if shared.replicas[request.place].state == State::Invalid {
                    self.miss(key, &mut line.tally, shared, request);
                } else {
                    self.upgrade(key, &mut line.tally, shared, request);
                }
                // What others wrote must be looked up before it is overwritten.
                shared.settle(request.place, request.words);
                if request.write {
                    shared.write(request.place, request.words, self.words);
                }
            }
        }
    }

    /// A request for a granule that no other node ever touched.
    fn alone(
        &mut self,
        key: u64,
        tally: &mut Tally,
        replica: &mut Replica<O::Tag>,
        request: &Request<O::Tag>,
    ) {
        match replica.state {
            State::Invalid => {
                self.begin(tally, replica, request, Source::Memory);
                replica.state = match self.protocol {
                    _ if request.write => State::Modified,
                    Protocol::Msi => State::Shared,
                    Protocol::Mesi | Protocol::Mesif => State::Exclusive,
                };
            }
            State::Exclusive => replica.state = State::Modified,
            State::Shared | State::Forward => {
                self.count_upgrade(key, tally, request, 0);
                replica.state = State::Modified;
            }
            State::Modified => {}
        }
    }

    fn miss(
        &mut self,
        key: u64,
        tally: &mut Tally,
        shared: &mut Shared<O::Tag>,
        request: &Request<O::Tag>,
    ) {
        let place = request.place;
        let source = self.fetch(tally, shared, request);
        let sole = shared.valid.is_empty();
        if request.write {
            self.invalidate_others(key, tally, shared, request);
        }
        self.begin(tally, &mut shared.replicas[place], request, source);
        self.await_classification(shared, request);
        shared.valid.insert(place);
        let state = if request.write {
            shared.time += 1;
            shared.owner = place;
            State::Modified
        } else if sole && self.protocol != Protocol::Msi {
            shared.owner = place;
            State::Exclusive
        } else if self.protocol == Protocol::Mesif {
            shared.forwarder = place;
            State::Forward
        } else {
            State::Shared
        };
        shared.replicas[place].state = state;
    }

    /// Finds the source of a miss's data. An owner or forwarder loses that role; a write
    /// invalidates it afterwards.
    fn fetch(
        &mut self,
        tally: &mut Tally,
        shared: &mut Shared<O::Tag>,
        request: &Request<O::Tag>,
    ) -> Source {
        let owner = std::mem::replace(&mut shared.owner, NO_REPLICA);
        let forwarder = std::mem::replace(&mut shared.forwarder, NO_REPLICA);
        let holder = if owner == NO_REPLICA {
            forwarder
        } else {
            owner
        };
        if holder == NO_REPLICA {
            return Source::Memory;
        }
        let replica = &mut shared.replicas[holder];
        let node = replica.node;
        let was = std::mem::replace(&mut replica.state, State::Shared);
        if was == State::Modified {
            shared
                .history
                .record(std::mem::take(&mut shared.written), shared.time, node);
            if !request.write {
                tally.write_backs = tally.write_backs.saturating_add(1);
                self.nodes[node as usize].write_backs += 1;
            }
            shared.tally.hitm += 1;
            self.nodes[request.node as usize].hitm += 1;
            Source::Dirty(node)
        } else if self.protocol == Protocol::Mesif {
            shared.tally.forwards += 1;
            self.nodes[request.node as usize].forwards += 1;
            Source::Clean(node)
        } else {
            Source::Memory
        }
    }

    fn upgrade(
        &mut self,
        key: u64,
        tally: &mut Tally,
        shared: &mut Shared<O::Tag>,
        request: &Request<O::Tag>,
    ) {
        let invalidated = self.invalidate_others(key, tally, shared, request);
        self.count_upgrade(key, tally, request, invalidated);
        shared.time += 1;
        shared.owner = request.place;
        shared.forwarder = NO_REPLICA;
        shared.replicas[request.place].state = State::Modified;
    }

    fn count_upgrade(
        &mut self,
        key: u64,
        tally: &mut Tally,
        request: &Request<O::Tag>,
        invalidated: u32,
    ) {
        tally.upgrades = tally.upgrades.saturating_add(1);
        self.nodes[request.node as usize].upgrades += 1;
        self.observer.upgrade(&Upgrade {
            line: self.base(key),
            node: request.node,
            invalidated,
            tag: request.tag,
        });
    }

    /// Invalidates every copy but the requester's, and returns their number.
    fn invalidate_others(
        &mut self,
        key: u64,
        tally: &mut Tally,
        shared: &mut Shared<O::Tag>,
        request: &Request<O::Tag>,
    ) -> u32 {
        let had = shared.replicas[request.place].state != State::Invalid;
        if had {
            shared.valid.remove(request.place);
        }
        let mut invalidated = 0;
        while let Some(victim) = shared.valid.pop() {
            invalidated += 1;
            self.lose(key, tally, shared, victim, End::Invalidated);
            let replica = &shared.replicas[victim];
            self.recent.forget(replica.node, key);
            if let Some(caches) = self.caches {
                caches.remove(replica.node, key, request.slot);
            }
            self.observer.invalidation(&Invalidation {
                line: self.base(key),
                victim: replica.node,
                victim_tag: replica.tag,
                writer: request.node,
                tag: request.tag,
            });
        }
        if had {
            shared.valid.insert(request.place);
        }
        shared.tally.invalidations += u64::from(invalidated);
        self.nodes[request.node as usize].invalidations += u64::from(invalidated);
        invalidated
    }

    /// Begins a lifetime.
    fn begin(
        &mut self,
        tally: &mut Tally,
        replica: &mut Replica<O::Tag>,
        request: &Request<O::Tag>,
        source: Source,
    ) {
        if request.write {
            tally.write_misses = tally.write_misses.saturating_add(1);
            self.nodes[request.node as usize].write_misses += 1;
        }
        replica.source = source;
        replica.write = request.write;
        replica.tag = request.tag;
        replica.essential = replica.lost != Lost::Invalidated;
    }

    /// Sets what is pending in the lifetime that begins. The time has not yet advanced for the
    /// requester's own write.
    fn await_classification(&mut self, shared: &mut Shared<O::Tag>, request: &Request<O::Tag>) {
        let replica = &mut shared.replicas[request.place];
        if replica.essential {
            replica.since = shared.time;
            replica.pending = 0;
            return;
        }
        let lost = replica.pending;
        let used = match &shared.history {
            History::Narrow(_) => {
                let (pending, fresh) = shared.history.foreign(replica.node, replica.since, lost);
                replica.pending = pending;
                fresh & request.words.mask != 0
            }
            History::Wide(_) => {
                replica.pending = !0;
                shared
                    .history
                    .foreign_within(request.words, replica.node, lost)
            }
        };
        if !used {
            shared.tally.false_by_first_access += 1;
            self.nodes[request.node as usize].false_by_first_access += 1;
        }
    }

    /// The copy at `place` is lost. It must have been removed from the valid ones.
    fn lose(
        &mut self,
        key: u64,
        tally: &mut Tally,
        shared: &mut Shared<O::Tag>,
        place: usize,
        end: End,
    ) {
        let replica = &mut shared.replicas[place];
        match self.end(key, replica, end) {
            MissKind::TrueSharing => shared.tally.true_sharing += 1,
            MissKind::FalseSharing => shared.tally.false_sharing += 1,
            MissKind::Replacement => tally.replacement = tally.replacement.saturating_add(1),
            MissKind::Cold => {}
        }
        replica.pending = shared.time;
    }

    /// Ends a lifetime: its miss is classified, counted and reported.
    fn end(&mut self, key: u64, replica: &mut Replica<O::Tag>, end: End) -> MissKind {
        let kind = replica.miss_kind();
        let counts = &mut self.nodes[replica.node as usize];
        match kind {
            MissKind::Cold => counts.cold += 1,
            MissKind::Replacement => counts.replacement += 1,
            MissKind::TrueSharing => counts.true_sharing += 1,
            MissKind::FalseSharing => counts.false_sharing += 1,
        }
        self.observer.miss(&Miss {
            line: self.base(key),
            node: replica.node,
            kind,
            write: replica.write,
            source: replica.source,
            end,
            tag: replica.tag,
        });
        replica.state = State::Invalid;
        replica.lost = match end {
            End::Replaced => Lost::Replaced,
            End::Invalidated | End::Finished => Lost::Invalidated,
        };
        kind
    }

    /// Removes the granule from `node`, which has no room for it any more.
    pub(crate) fn replace(&mut self, line: &mut Line<O::Tag>, node: u32) {
        let key = line.key;
        let dirty = match &mut line.body {
            Body::Alone(replica) => {
                let dirty = replica.state == State::Modified;
                if self.end(key, replica, End::Replaced) == MissKind::Replacement {
                    line.tally.replacement = line.tally.replacement.saturating_add(1);
                }
                dirty
            }
            Body::Shared(shared) => {
                let Some(place) = shared.place(node) else {
                    return;
                };
                let dirty = shared.replicas[place].state == State::Modified;
                if dirty {
                    shared
                        .history
                        .record(std::mem::take(&mut shared.written), shared.time, node);
                }
                if shared.owner == place {
                    shared.owner = NO_REPLICA;
                }
                if shared.forwarder == place {
                    shared.forwarder = NO_REPLICA;
                }
                shared.valid.remove(place);
                self.lose(key, &mut line.tally, shared, place, End::Replaced);
                dirty
            }
        };
        if dirty {
            line.tally.write_backs = line.tally.write_backs.saturating_add(1);
            self.nodes[node as usize].write_backs += 1;
        }
    }

    /// Ends every lifetime at the end of the trace.
    pub(crate) fn finish(&mut self, line: &mut Line<O::Tag>) {
        let key = line.key;
        match &mut line.body {
            Body::Alone(replica) => {
                if replica.state != State::Invalid
                    && self.end(key, replica, End::Finished) == MissKind::Replacement
                {
                    line.tally.replacement = line.tally.replacement.saturating_add(1);
                }
            }
            Body::Shared(shared) => {
                while let Some(place) = shared.valid.pop() {
                    self.lose(key, &mut line.tally, shared, place, End::Finished);
                }
            }
        }
    }
}
