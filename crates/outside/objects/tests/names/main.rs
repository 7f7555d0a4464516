//! Names in programs that are compiled here, with expectations that follow from their sources.

mod ahead;
mod build;
mod code;
mod data;
mod debug_files;
mod frames;
mod holders;
mod live;
mod lock_calls;
mod pointers;
mod remembered;
mod thread_locals;
