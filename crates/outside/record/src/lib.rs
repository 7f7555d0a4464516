//! Records every memory access of a program: compiles programs so that they can be recorded
//! ([`compile`], [`cargo`]), and runs them, or any other under an emulator, into a trace
//! ([`record`]).
//!
//! Used by the library `sunder`. It must not read more of a trace than whether it is whole, and
//! must not print: what it has to say goes to the caller's `Notices`.

pub mod cargo;
pub mod compile;
mod emulated;
mod record;

pub use compile::Language;
pub use record::{Options, Recording, Via, record};
