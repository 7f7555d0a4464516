//! What is to be replayed, and how. Plain values; the program reads them from its arguments.

use crate::progress::{NoProgress, Progress};
use std::path::PathBuf;
use std::sync::Arc;
use sunder_coherence::{Caches, Protocol};
use sunder_placement::Policy;

/// A replay on one machine.
#[derive(Clone)]
pub struct Simulate {
    /// The trace.
    pub file: PathBuf,
    /// Bytes that are kept coherent as a whole: a cache line, or a page.
    pub granule: u64,
    /// Nodes with caches of their own; one for each thread if not given.
    pub nodes: Option<u32>,
    /// How copies are kept coherent.
    pub protocol: Protocol,
    /// Private caches of a node; infinite if not given.
    pub caches: Option<Caches>,
    /// In which order the threads' accesses come.
    pub order: Order,
    /// Which thread runs on which node: threads from 1, nodes from 0.
    pub map: Vec<(u32, u32)>,
    /// Where heap objects lie.
    pub placement: PlacementAsked,
    /// Fields, types or elements that get lines of their own: `TYPE.FIELD`, `TYPE`, `OBJECT[]`.
    pub pad: Vec<String>,
    /// Globals, or blocks from a call site, that start and end at multiples of so many bytes.
    pub align: Vec<(String, u64)>,
    /// Whether accesses to anything but heap objects are left out.
    pub heap_only: bool,
    /// Findings that cost less than so many percent are marked as not significant.
    pub threshold: Option<f64>,
    /// Who is told how far the replay has come.
    pub progress: Arc<dyn Progress>,
}

impl Simulate {
    /// A replay of `file` as it was recorded, on lines of 64 bytes.
    pub fn new(file: PathBuf) -> Self {
        Self {
            file,
            granule: 64,
            nodes: None,
            protocol: Protocol::Mesi,
            caches: None,
            order: Order::Parallel,
            map: Vec::new(),
            placement: PlacementAsked::Actual,
            pad: Vec::new(),
            align: Vec::new(),
            heap_only: false,
            threshold: None,
            progress: Arc::new(NoProgress),
        }
    }
}

/// Replays that try changes.
#[derive(Clone)]
pub struct WhatIf {
    /// The replay that all others are compared with; nothing of it is moved.
    pub base: Simulate,
    /// Changes are tried for so many findings, the dearest first.
    pub top: usize,
}

/// Where heap objects lie in a replay.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum PlacementAsked {
    /// As recorded.
    #[default]
    Actual,
    /// As an allocator of this kind would do it.
    Policy(Policy),
    /// As recorded, but blocks of these call sites have lines of their own.
    Padded(Vec<String>),
}

/// In which order the threads' accesses come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// As if each thread had a processor of its own, all of one speed; synchronisation orders them.
    #[default]
    Parallel,
    /// As they were recorded, however busy that machine was.
    Recorded,
}
