//! `sunder detect` on programs of all kinds, its reports, and how it ends with the program.

#[path = "../support/mod.rs"]
mod support;

mod calls;
mod ci;
mod follow;
mod go;
mod import;
mod interrupts;
mod jit;
mod jobs;
mod layout;
mod measure;
mod musl;
mod outputs;
mod real_programs;
mod recorded;
mod refused;
mod status;
mod thread_locals;
mod unprivileged;
