//! What x86-64 machine code does and how small pieces of it are encoded: the only place
//! that answers "what does this instruction do", and the only place that makes a jump.
//!
//! - [`jump`] and [`trampoline`] encode; [`patch`] is the record from which a trampoline
//!   is made, and [`copies`] are limits of copied code. Libraries inside a target and the
//!   tool use them.
//!
//! Called by the decoder of samples, the analysis of types, the rewriter, the emulator's
//! plugin, and whoever diverts code. Pure: reads no memory but what it is given, and must
//! not know what its answers are used for. No unsafe code, no operating system, and nothing
//! here allocates or panics.
#![no_std]
#![forbid(unsafe_code)]

pub mod copies;
pub mod jump;
pub mod patch;
pub mod trampoline;
