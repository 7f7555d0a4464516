//! Memory that the target and the tool share: the segment that the runtime writes, the registry
//! of segments, and the control files of remap and isolate. The tool makes each file, and both
//! sides map it. For the segment, [`layout`] defines the offsets and types, and [`Segment`] is
//! the tool's side.
//!
//! Libraries inside a target use the layout types only (they neither allocate nor make
//! system calls, and need no standard library). The tool's side is there with the feature
//! `tool`, which those libraries leave out. Whatever the tool reads here was written by a
//! program that may be broken or hostile: every number is checked before it is used.
//!
//! Used by the libraries inside a target and by the tool. It must not decide what is recorded,
//! moved or isolated: it only defines how both sides say so.

#![cfg_attr(not(feature = "tool"), no_std)]

pub mod attach;
pub mod creation;
mod environment;
#[cfg(feature = "tool")]
mod heap;
pub mod isolation;
pub mod large;
pub mod layout;
pub mod registry;
pub mod remap;
pub mod ring;
#[cfg(feature = "tool")]
mod segment;
pub mod sites;
pub mod stacks;
pub mod tracking;

#[cfg(feature = "tool")]
pub use creation::{Creation, CreatorFrame};
pub use environment::{PRELOAD_VARIABLE, SEGMENT_VARIABLE};
#[cfg(feature = "tool")]
pub use heap::{HeapBlock, HeapEvent, HeapEventKind, Inherited, TimeBounds};
#[cfg(feature = "tool")]
pub use registry::{Claim, Origin, Registry};
#[cfg(feature = "tool")]
pub use segment::{RuntimeStatus, Segment, SegmentOptions, TargetThread, TimerSample};

/// What can go wrong on the tool's side.
#[cfg(feature = "tool")]
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The kernel refused the memory file or its mapping.
    #[error("cannot make the segment shared with the target: {0}")]
    Create(#[source] std::io::Error),
    /// All entries of the registry are in use.
    #[error("more processes at a time than can be recorded")]
    NoEntry,
    /// The file is not a segment, or is truncated.
    #[error("this file is not a sunder segment (wrong magic number or too short)")]
    NotASegment,
    /// The segment comes from another version.
    #[error("the segment has version {found}, this sunder reads version {expected}")]
    Version {
        /// The version in the file.
        found: u32,
        /// The version of this build.
        expected: u32,
    },
}

/// Results of this crate.
#[cfg(feature = "tool")]
pub type Result<T> = std::result::Result<T, Error>;
