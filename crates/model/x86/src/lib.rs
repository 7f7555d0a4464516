//! What x86-64 machine code does and how small pieces of it are encoded: the only place
//! that answers "what does this instruction do", and the only place that makes a jump.
//!
//! - [`Manual`] tells which memory and registers an instruction reads and writes ([`Does`]),
//!   [`Flags::of`] which flags, [`values`] what registers hold afterwards, and [`Control::of`]
//!   where control flow goes. They come with the feature `decode`.
//! - [`jump`] and [`trampoline`] encode; [`patch`] is the record from which a trampoline is
//!   made, and [`copies`] has limits of copied code. Libraries inside a target and the tool use
//!   them.
//!
//! Called by the decoder of samples, the analysis of types, the rewriter, the emulator's
//! plugin, and all code that diverts functions. Pure: it reads no memory but its arguments, and
//! must not know what its answers are used for. It has no unsafe code, uses no operating
//! system, and neither allocates nor panics.
#![no_std]
#![forbid(unsafe_code)]

#[cfg(feature = "decode")]
mod control;
pub mod copies;
#[cfg(feature = "decode")]
mod does;
#[cfg(feature = "decode")]
mod flags;
pub mod jump;
#[cfg(feature = "decode")]
mod memory;
pub mod patch;
#[cfg(feature = "decode")]
pub mod register;
pub mod trampoline;
#[cfg(feature = "decode")]
mod value;

#[cfg(feature = "decode")]
pub use control::Control;
#[cfg(feature = "decode")]
pub use does::{Does, Manual, Registers};
#[cfg(feature = "decode")]
pub use flags::Flags;
#[cfg(feature = "decode")]
pub use memory::{Access, Action, AddressForm, Certainty, Index, Part, Reach, Role, Segment};
#[cfg(feature = "decode")]
pub use value::{Rule, Source, Value, source, step_of_stack, values};
