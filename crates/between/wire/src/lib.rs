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
pub mod commits;
#[cfg(feature = "tool")]
mod copied;
pub mod creation;
#[cfg(feature = "tool")]
mod creators;
mod environment;
#[cfg(feature = "tool")]
mod error;
#[cfg(feature = "tool")]
mod heap;
#[cfg(feature = "tool")]
mod images;
pub mod isolation;
pub mod large;
pub mod layout;
pub mod parked;
pub mod placing;
pub mod registry;
pub mod remap;
pub mod ring;
#[cfg(feature = "tool")]
mod segment;
pub mod sites;
pub mod stacks;
pub mod tracking;
pub mod trial;

#[cfg(feature = "tool")]
pub use creators::{Creation, CreatorFrame};
#[cfg(feature = "tool")]
pub use environment::descriptor_path;
pub use environment::{PRELOAD_VARIABLE, SEGMENT_VARIABLE};
#[cfg(feature = "tool")]
pub use error::{Error, Result};
#[cfg(feature = "tool")]
pub use heap::{HeapBlock, HeapEvent, HeapEventKind, Inherited, TimeBounds};
#[cfg(feature = "tool")]
pub use images::{Claim, Origin, Registry};
#[cfg(feature = "tool")]
pub use segment::{RuntimeStatus, Segment, SegmentOptions, TargetThread, TimerSample};
