//! A trace's data about itself: the progress record at its start, and the payloads of its header,
//! stacks, modules and end blocks. Written by the recorder inside the target: the writing half
//! uses no heap, never panics and calls nothing of the system. The reading half trusts nothing.

mod end;
mod header;
mod modules;
mod progress;
mod stacks;

pub use end::{End, Reason};
pub use header::{Clock, Header, HeaderParts, Via};
pub use modules::{Module, ModuleParts, ModuleWriter, Segment};
pub use progress::{PREFIX_BYTES, Progress, State, note_death};
#[cfg(feature = "read")]
pub(crate) use stacks::parse_stacks;
pub use stacks::write_stack;
