//! What memory of a program a kernel call of x86-64 Linux uses: which of its arguments are
//! pointers, and to how many bytes. Used by the tool, for threads that are stopped in a call before
//! pages move, and by the library inside a program, before a call and while threads are in calls.
//!
//! - [`table`] is the list of calls. Only arguments that it names count as pointers; other registers
//!   hold what earlier code left in them, which may be any address.
//! - [`uses`] follows the pointers, through vectors, messages and paths.
//!
//! It must not make a call, allocate, or know which side asks. The program's memory is read
//! through the caller's function; what is read is copied before it is checked, no count is trusted,
//! and memory that can't be read counts as a use of any memory.

#![no_std]

mod call;
mod table;
mod uses;

pub use call::KernelCall;
pub use uses::{Read, Use};
