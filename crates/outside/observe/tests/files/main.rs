//! What is read from bytes and files: code, recordings, samples. Nothing here observes a program.

mod code;
mod decode;
mod import;
mod modules;
#[path = "../processes/support.rs"]
mod support;
