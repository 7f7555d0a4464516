//! The trace file: a complete record of a program's memory accesses,
//! allocations, threads and synchronisation (design 4.6). `docs/design/trace.md`
//! describes it byte by byte.
//!
//! It has two sides. [`record`] runs inside the recorded program (the instrumented runtime, an
//! emulator's plugin): it never panics, never uses the heap, and makes raw system calls only.
//! [`read`] runs outside and trusts nothing in the file. Both use the parts in between: [`slot`],
//! [`block`], the codec and [`meta`].
//!
//! Used by the tracer and the emulator's plugin, which record, by the library that announces to
//! the plugin, and by the tool, which replays. This crate must not depend on which recorder
//! writes a trace or on what a trace is read for.

pub mod announce;
pub mod block;
mod codec;
mod damage;
mod error;
mod fields;
pub mod meta;
pub mod read;
pub mod record;
pub mod slot;
mod varint;
mod zstandard;

pub use codec::decode::{Columns, Decoder};
pub use codec::encode::Encoder;
pub use damage::{damage, why_partial};
pub use error::TraceError;
pub use read::{Event, Filter, Trace, What};

/// The first bytes of every trace.
pub const MAGIC: [u8; 8] = *b"SUNDERTR";

/// The version of the format that this crate writes, and the newest that it
/// reads.
pub const VERSION: u32 = 1;
