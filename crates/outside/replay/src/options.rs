//! Options of a replay. Plain values; the program makes them from its arguments.

use crate::progress::{NoProgress, Progress};
use std::path::PathBuf;
use std::sync::Arc;
use sunder_coherence::{Caches, Config, Protocol};
use sunder_placement::Policy;

/// A replay on one machine.
#[derive(Clone)]
pub struct Simulate {
    /// The trace.
    pub file: PathBuf,
    /// Bytes of a granule of coherence: a cache line, or a page.
    pub granule: u64,
    /// Nodes with caches of their own; by default one for each thread.
    pub nodes: Option<u32>,
    /// The most nodes, if their number is not given: further threads share them.
    pub most_nodes: u32,
    /// The coherence protocol.
    pub protocol: Protocol,
    /// Sizes of a node's private caches; by default infinite.
    pub caches: Option<Caches>,
    /// The order in which the accesses of different threads are replayed.
    pub order: Order,
    /// Pairs of thread (from 1) and node (from 0) that fix where a thread runs.
    pub map: Vec<(u32, u32)>,
    /// The placement of heap objects.
    pub placement: PlacementAsked,
    /// Fields, types or elements that get lines of their own: `TYPE.FIELD`, `TYPE`, `OBJECT[]`.
    pub pad: Vec<String>,
    /// Globals, or blocks of a call site, with the bytes to whose multiples they are aligned at
    /// both ends.
    pub align: Vec<(String, u64)>,
    /// Whether accesses to anything but heap objects are left out.
    pub heap_only: bool,
    /// Findings that cost less than this many percent are marked as not significant.
    pub threshold: Option<f64>,
    /// Whether the result leaves out what differs from run to run: how long the replay took, and the
    /// machine that it ran on.
    pub reproducible: bool,
    /// The most bytes of memory that the replay takes. If none, half of what the machine, or the
    /// control group of this process, has left.
    pub memory: Option<u64>,
    /// Receives the number of events read.
    pub progress: Arc<dyn Progress>,
}

impl Simulate {
    /// A replay of `file` as it was recorded, with lines of 64 bytes.
    pub fn new(file: PathBuf) -> Self {
        Self {
            file,
            granule: 64,
            nodes: None,
            most_nodes: u32::MAX,
            protocol: Protocol::Mesi,
            caches: None,
            order: Order::Canonical,
            map: Vec::new(),
            placement: PlacementAsked::Actual,
            pad: Vec::new(),
            align: Vec::new(),
            heap_only: false,
            threshold: None,
            reproducible: false,
            memory: None,
            progress: Arc::new(NoProgress),
        }
    }

    /// The same replay on the machine of the SCSTallocator paper (section 4.1), [`Config::dsm`].
    #[must_use]
    pub const fn on_dsm(mut self) -> Self {
        let dsm = Config::dsm();
        (self.granule, self.most_nodes) = (dsm.granule, dsm.nodes);
        self.protocol = dsm.protocol;
        self
    }
}

/// A replay, and further ones that try changes.
#[derive(Clone)]
pub struct WhatIf {
    /// The replay that all others are compared with; no object is moved in it.
    pub base: Simulate,
    /// Changes are tried for this many findings, the costliest first.
    pub top: usize,
}

/// The placement of heap objects in a replay.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum PlacementAsked {
    /// As recorded.
    #[default]
    Actual,
    /// As this allocation policy places them.
    Policy(Policy),
    /// As recorded, but the blocks of these call sites have lines of their own.
    Padded(Vec<String>),
}

/// The order in which the accesses of different threads are replayed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// As if each thread had a processor of its own, all of one speed; only synchronisation
    /// orders them.
    Parallel,
    /// The same, but a lock goes to the thread that asks for it first in this order, whoever had
    /// it in the recording: the same for all recordings of threads that do the same.
    #[default]
    Canonical,
    /// The recorded order, which the load of the recording machine has shaped.
    Recorded,
}
