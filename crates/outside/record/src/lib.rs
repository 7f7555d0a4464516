//! Records every memory access of a program. [`compile`] and [`cargo`] build programs with
//! hooks for recording; [`record`] runs such a program, or any other under an emulator, and
//! writes a trace.
//!
//! Used by the library `sunder` and the program. It must not read more of a trace than is needed to see whether
//! it is complete, and must not print: messages go to the caller's `Notices`.

pub mod cargo;
pub mod compile;
mod emulated;
mod record;

pub use compile::Language;
pub use record::{Options, Recording, Via, record};
