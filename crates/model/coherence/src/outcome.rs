//! The result of a finished simulation: the counts of the machine, of each node and of each
//! granule.

use crate::config::Config;
use crate::counts::Counts;
use crate::line::{Body, Line};
use crate::observer::Observer;
use sunder_access::Address;

/// The result of a simulation.
#[derive(Debug)]
pub struct Outcome<O: Observer = ()> {
    config: Config,
    accesses: u64,
    nodes: Vec<Counts>,
    lines: Vec<Line<O::Tag>>,
    observer: O,
}

/// The counts of one granule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LineCounts {
    /// The granule's first byte.
    pub line: Address,
    /// The number of nodes that touched it.
    pub nodes: u32,
    /// Its counts. Replacement and write misses, upgrades and write-backs of a single granule
    /// stop at `u32::MAX`.
    pub counts: Counts,
}

impl<O: Observer> Outcome<O> {
    pub(crate) const fn new(
        config: Config,
        accesses: u64,
        nodes: Vec<Counts>,
        lines: Vec<Line<O::Tag>>,
        observer: O,
    ) -> Self {
        Self {
            config,
            accesses,
            nodes,
            lines,
            observer,
        }
    }

    /// The configuration of the machine.
    pub const fn config(&self) -> &Config {
        &self.config
    }

    /// The number of accesses.
    pub const fn accesses(&self) -> u64 {
        self.accesses
    }

    /// The counts of the whole machine.
    pub fn totals(&self) -> Counts {
        let mut totals = Counts::default();
        for node in &self.nodes {
            totals += *node;
        }
        totals
    }

    /// The counts of each node, by its index. An event between two nodes counts for the
    /// requesting node, a write-back for the node that wrote. A node's working set in granules
    /// is its cold misses.
    pub fn nodes(&self) -> &[Counts] {
        &self.nodes
    }

    /// The working set of the machine: the number of granules that any node touched. For pages,
    /// also the number of faults for which no copy existed.
    pub const fn touched(&self) -> usize {
        self.lines.len()
    }

    /// The counts of each granule, in the order in which they were first touched.
    pub fn lines(&self) -> impl ExactSizeIterator<Item = LineCounts> + '_ {
        let bits = self.config.granule.trailing_zeros();
        self.lines.iter().map(move |line| describe(line, bits))
    }

    /// The observer.
    pub fn into_observer(self) -> O {
        self.observer
    }

    /// The observer, by reference.
    pub const fn observer(&self) -> &O {
        &self.observer
    }
}

fn describe<T>(line: &Line<T>, granule_bits: u32) -> LineCounts {
    let tally = line.tally;
    let mut counts = Counts {
        references: line.references,
        cold: 1,
        replacement: tally.replacement.into(),
        write_misses: tally.write_misses.into(),
        upgrades: tally.upgrades.into(),
        write_backs: tally.write_backs.into(),
        ..Counts::default()
    };
    let mut nodes = 1;
    if let Body::Shared(shared) = &line.body {
        nodes = shared.replicas.len() as u32;
        counts.cold = nodes.into();
        counts.true_sharing = shared.tally.true_sharing;
        counts.false_sharing = shared.tally.false_sharing;
        counts.false_by_first_access = shared.tally.false_by_first_access;
        counts.invalidations = shared.tally.invalidations;
        counts.hitm = shared.tally.hitm;
        counts.forwards = shared.tally.forwards;
    }
    LineCounts {
        line: Address(line.key << granule_bits),
        nodes,
        counts,
    }
}
