//! The trace file: a complete record of a program's memory accesses,
//! allocations, threads and synchronisation (design 4.6). `docs/design/trace.md`
//! describes it byte by byte.
//!
//! The format only. The recorder (`crates/inside/recorder`, inside the recorded process) uses the
//! parts that both sides share: [`slot`], [`block`], [`Encoder`] and [`meta`]; none of it uses the
//! heap, panics, or calls the system. `read`, behind the feature of this name, runs outside and trusts
//! nothing in the file.
//!
//! Used by the tracer and the emulator's plugin, which record, by the library that announces to
//! the plugin, and by the tool, which replays. This crate must not depend on which recorder
//! writes a trace or on what a trace is read for.

#![cfg_attr(
    not(feature = "read"),
    allow(dead_code, reason = "the parts that only the reader uses")
)]

pub mod announce;
pub mod block;
mod codec;
#[cfg(feature = "craft")]
pub mod craft;
#[cfg(feature = "read")]
mod damage;
#[cfg(feature = "read")]
mod error;
mod fields;
pub mod meta;
#[cfg(feature = "read")]
pub mod read;
pub mod slot;
mod varint;
mod zstandard;

pub use codec::SLOTS;
pub use codec::decode::{Columns, Decoder};
pub use codec::encode::{Counts, Encoder, Of};
#[cfg(feature = "read")]
pub use damage::{damage, why_partial};
#[cfg(feature = "read")]
pub use error::TraceError;
#[cfg(feature = "read")]
pub use read::{Event, Filter, Trace, What};

/// The first bytes of every trace.
pub const MAGIC: [u8; 8] = *b"SUNDERTR";

/// The version of the format that this crate writes, and the newest that it
/// reads.
pub const VERSION: u32 = 1;
