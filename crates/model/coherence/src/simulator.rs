//! The simulator: it takes accesses, splits them into granules, and handles plain hits itself.
//! All else is a transition.

use crate::cache::PrivateCaches;
use crate::config::{Config, Error};
use crate::counts::Counts;
use crate::history::Words;
use crate::line::{Body, Line, Replica, Shared, State, Tally};
use crate::lookup::{Free, Lookup, Recent, RecentTable};
use crate::observer::Observer;
use crate::outcome::Outcome;
use crate::transition::{Bus, Request};
use sunder_access::{Address, Kind};

/// One simulated machine. It is cheap to make, and `Send` if its observer is: run one for each
/// configuration side by side.
///
/// The caller chooses the node that makes an access, and so which threads share a node. It also
/// chooses the address, and so where objects lie.
#[derive(Debug)]
pub struct Simulator<O: Observer = ()> {
    config: Config,
    granule_bits: u32,
    word_bits: u32,
    /// Words of a granule.
    words: u32,
    accesses: u64,
    recent: RecentTable,
    lookup: Lookup,
    lines: Vec<Line<O::Tag>>,
    nodes: Vec<Counts>,
    caches: Option<PrivateCaches>,
    observer: O,
}

impl Simulator<()> {
    /// A machine without observer.
    ///
    /// # Errors
    /// If such a machine is impossible.
    pub fn new(config: Config) -> Result<Self, Error> {
        Self::with_observer(config, ())
    }
}

impl<O: Observer> Simulator<O> {
    /// A machine that reports events to `observer`.
    ///
    /// # Errors
    /// If such a machine is impossible.
    pub fn with_observer(config: Config, observer: O) -> Result<Self, Error> {
        config.check()?;
        let granule_bits = config.granule.trailing_zeros();
        let word_bits = config.word.trailing_zeros();
        Ok(Self {
            config,
            granule_bits,
            word_bits,
            words: 1 << (granule_bits - word_bits),
            accesses: 0,
            recent: RecentTable::new(config.nodes),
            lookup: Lookup::default(),
            lines: Vec::new(),
            nodes: vec![Counts::default(); config.nodes as usize],
            caches: PrivateCaches::new(config.caches, config.granule, config.nodes),
            observer,
        })
    }

    /// `node` accesses `width` bytes from `address`, after all accesses before it. An update or
    /// atomic is a write: it requests ownership once.
    ///
    /// # Errors
    /// If the machine has no such node, if there are no bytes, or if they go beyond the end of
    /// the address space; then the access is not made. If more granules are touched than can be
    /// numbered; then a part of the access may have been made.
    #[inline]
    pub fn access(
        &mut self,
        node: u32,
        address: Address,
        width: u32,
        kind: Kind,
        tag: O::Tag,
    ) -> Result<(), Error> {
        if node >= self.config.nodes {
            return Err(Error::Node {
                node,
                nodes: self.config.nodes,
            });
        }
        let last = u64::from(width)
            .checked_sub(1)
            .and_then(|more| address.0.checked_add(more));
        let Some(last) = last else {
            return Err(Error::Span {
                address: address.0,
                width,
            });
        };
        let keys = (address.0 >> self.granule_bits, last >> self.granule_bits);
        if keys.0 == keys.1 {
            let words = self.words_between(address.0, last);
            self.reference(node, keys.0, words, kind.writes(), tag)?;
        } else {
            self.straddle(node, (address.0, last), kind.writes(), tag)?;
        }
        self.accesses += 1;
        Ok(())
    }

    /// The words of one granule that hold the bytes from `first` to `last`.
    #[inline]
    const fn words_between(&self, first: u64, last: u64) -> Words {
        let within = self.config.granule - 1;
        let first = ((first & within) >> self.word_bits) as u32;
        let last = ((last & within) >> self.word_bits) as u32;
        let mask = if self.words <= 64 {
            (u64::MAX >> (63 - (last - first))) << first
        } else {
            u64::MAX
        };
        Words { first, last, mask }
    }

    /// An access to several granules is one reference to each.
    #[cold]
    fn straddle(
        &mut self,
        node: u32,
        (first, last): (u64, u64),
        write: bool,
        tag: O::Tag,
    ) -> Result<(), Error> {
        for key in first >> self.granule_bits..=last >> self.granule_bits {
            let base = key << self.granule_bits;
            let end = base | (self.config.granule - 1);
            let words = self.words_between(first.max(base), last.min(end));
            self.reference(node, key, words, write, tag)?;
        }
        Ok(())
    }

    #[inline]
    fn reference(
        &mut self,
        node: u32,
        key: u64,
        words: Words,
        write: bool,
        tag: O::Tag,
    ) -> Result<(), Error> {
        if self.recent.at(node, key).pass(key, write) {
            return Ok(());
        }
        self.reference_unfree(node, key, words, write, tag)
    }

    /// A reference that is not known to be free.
    #[inline(never)]
    fn reference_unfree(
        &mut self,
        node: u32,
        key: u64,
        words: Words,
        write: bool,
        tag: O::Tag,
    ) -> Result<(), Error> {
        let mut recent = *self.recent.at(node, key);
        if !recent.is(key) {
            recent = self.find(node, key, tag)?;
        }
        let Recent { slot, place, .. } = recent;
        let place = usize::from(place);
        self.nodes[node as usize].references += 1;
        let line = &mut self.lines[slot as usize];
        line.references += 1;
        if recent.allows(write) {
            // The counter of free references is full, so they are counted now.
            let full = self.recent.at(node, key);
            count(&mut self.nodes[node as usize], &mut self.lines, full);
            return Ok(());
        }
        if self.caches.is_some() {
            self.make_room(node, key, slot);
        }
        let line = &mut self.lines[slot as usize];
        let (hit, free) = match &mut line.body {
            Body::Alone(replica) => match replica.state {
                State::Modified => (true, Free::All),
                State::Invalid => (false, Free::Nothing),
                State::Shared | State::Forward | State::Exclusive => (!write, Free::Reads),
            },
            Body::Shared(shared) => {
                let hit = shared.hit(place, words, write, self.words);
                (hit, shared.free(place))
            }
        };
        if hit {
            // Limited caches must see every access, for their order of use.
            if self.caches.is_none() {
                self.recent.free(node, key, free);
            }
        } else {
            self.request(&Request {
                slot,
                place,
                node,
                words,
                write,
                tag,
            });
        }
        Ok(())
    }

    #[inline(never)]
    fn request(&mut self, request: &Request<O::Tag>) {
        let (mut bus, lines) = self.bus();
        bus.request(&mut lines[request.slot as usize], request);
    }

    fn bus(&mut self) -> (Bus<'_, O>, &mut [Line<O::Tag>]) {
        let bus = Bus {
            protocol: self.config.protocol,
            granule_bits: self.granule_bits,
            words: self.words,
            nodes: &mut self.nodes,
            recent: &mut self.recent,
            caches: &mut self.caches,
            observer: &mut self.observer,
        };
        (bus, &mut self.lines)
    }

    /// For limited caches: `node` takes the granule in, and another granule may be replaced.
    fn make_room(&mut self, node: u32, key: u64, slot: u32) {
        let Some(caches) = &mut self.caches else {
            return;
        };
        let lines = &self.lines;
        let touched = caches.touch(node, key, slot, |slot| lines[slot as usize].key);
        if touched.first_level {
            self.nodes[node as usize].first_level += 1;
        }
        if let Some(gone) = touched.replaced {
            let (mut bus, lines) = self.bus();
            bus.replace(&mut lines[gone as usize], node);
        }
    }

    /// The entry of granule `key` and the index of `node` in it, both added if they are new.
    #[inline(never)]
    fn find(&mut self, node: u32, key: u64, tag: O::Tag) -> Result<Recent, Error> {
        let narrow = self.words <= 64;
        let (slot, place) = match self.lookup.slot(key) {
            Ok(slot) => {
                let body = &mut self.lines[slot as usize].body;
                if let Body::Alone(replica) = body
                    && replica.node != node
                {
                    self.recent.forget(replica.node, key);
                }
                // There are no more indices than nodes.
                let place = join(body, node, tag, narrow);
                (slot, place as u16)
            }
            Err(vacant) => {
                let slot = u32::try_from(self.lines.len()).unwrap_or(u32::MAX);
                if slot == u32::MAX {
                    return Err(Error::TooManyLines);
                }
                *vacant = slot;
                self.lines.push(Line {
                    key,
                    references: 0,
                    tally: Tally::default(),
                    body: Body::Alone(Replica::new(node, tag)),
                });
                (slot, 0)
            }
        };
        let recent = Recent::new(key, slot, place);
        let (nodes, lines) = (&mut self.nodes, &mut self.lines);
        self.recent.keep(node, key, recent, |mut gone| {
            count(&mut nodes[node as usize], lines, &mut gone);
        });
        Ok(recent)
    }

    /// The configuration of the machine.
    pub const fn config(&self) -> &Config {
        &self.config
    }

    /// The number of accesses so far.
    pub const fn accesses(&self) -> u64 {
        self.accesses
    }

    /// The number of granules touched so far.
    pub const fn lines(&self) -> usize {
        self.lines.len()
    }

    /// The observer, for reading while the trace runs.
    pub const fn observer(&self) -> &O {
        &self.observer
    }

    /// The observer, for changing it while the trace runs.
    pub const fn observer_mut(&mut self) -> &mut O {
        &mut self.observer
    }

    /// Ends the trace: every copy's lifetime ends, which classifies the last misses.
    pub fn finish(mut self) -> Outcome<O> {
        for (node, recent) in self.recent.all() {
            count(&mut self.nodes[node as usize], &mut self.lines, recent);
        }
        let (mut bus, lines) = self.bus();
        for line in lines {
            bus.finish(line);
        }
        Outcome::new(
            self.config,
            self.accesses,
            self.nodes,
            self.lines,
            self.observer,
        )
    }

    /// Checks the invariants between any two accesses. A granule has at most one owner, and
    /// then no other copy. It has at most one forwarder, with MESIF only. A copy is valid if
    /// and only if its node's cache has it. What is marked as free is free.
    ///
    /// # Panics
    /// If one of these does not hold.
    #[doc(hidden)]
    pub fn check_invariants(&mut self) {
        for (slot, line) in self.lines.iter().enumerate() {
            let replicas = match &line.body {
                Body::Alone(replica) => std::slice::from_ref(replica),
                Body::Shared(shared) => {
                    shared.check_invariants(self.config.protocol);
                    &shared.replicas
                }
            };
            for replica in replicas {
                if let Some(caches) = &mut self.caches {
                    let held = caches.holds(replica.node, line.key, slot as u32);
                    let valid = replica.state != State::Invalid;
                    assert_eq!(held, valid, "{:?} of line {:#x}", replica.state, line.key);
                }
                let recent = *self.recent.at(replica.node, line.key);
                if recent.is(line.key) {
                    let alone = matches!(line.body, Body::Alone(_));
                    let dirty = replica.state == State::Modified;
                    let settled = replica.state != State::Invalid && replica.pending == 0;
                    assert!(settled || !recent.allows(false));
                    assert!(alone && dirty || !recent.allows(true));
                }
            }
        }
    }
}

/// Counts the free references that were not counted yet.
fn count<T>(node: &mut Counts, lines: &mut [Line<T>], recent: &mut Recent) {
    let uncounted = u64::from(recent.take_uncounted());
    if uncounted > 0 {
        node.references += uncounted;
        lines[recent.slot as usize].references += uncounted;
    }
}

/// The index of `node` in a granule, which becomes shared if `node` is the second to come.
fn join<T: Copy>(body: &mut Body<T>, node: u32, tag: T, narrow: bool) -> usize {
    if let Body::Alone(replica) = body {
        if replica.node == node {
            return 0;
        }
        let first = replica.clone();
        *body = Body::Shared(Box::new(Shared::new(first, narrow)));
    }
    match body {
        Body::Shared(shared) => match shared.place(node) {
            Some(place) => place,
            None => shared.push(Replica::new(node, tag)),
        },
        Body::Alone(_) => 0,
    }
}
