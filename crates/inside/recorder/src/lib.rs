//! Records a program's accesses into a trace file, whatever observes them. It gives each thread a
//! buffer, packs full buffers into blocks in the thread that filled them, and appends these to the
//! file at offsets that an atomic addition reserves. Recording threads share no lock.
//!
//! Called by recorders (`tracer`, the instrumented runtime, and `emulator`, an emulator's plugin)
//! inside the recorded process. It must not use the heap or panic, and makes raw system calls only.
//! Where recording fails, it stops and writes the reason into the file's first bytes; the program
//! continues. Memory is bounded: one buffer for each living thread and twice as many encoders as
//! processors; a thread that finds none free waits.

#![cfg_attr(test, allow(clippy::disallowed_methods, clippy::disallowed_macros))]

mod buffer;
mod file;
mod memory;
mod pool;
mod recorder;
mod refusal;
mod stacks;
mod start;
mod ticks;

pub use buffer::{Buffer, Cursor, PAGE_SLOTS};
pub use memory::map;
pub use recorder::Recorder;
pub use refusal::Refusal;
pub use stacks::MOST_FRAMES;
pub use start::Start;
pub use ticks::Ticks;

#[cfg(test)]
mod tests;
