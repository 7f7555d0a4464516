//! Isolation, for `sunder protect` and for `sunder detect --observer isolate`.

#[path = "../support/mod.rs"]
mod support;

mod code;
mod commits;
mod handler;
mod observer;
mod programs;
mod signals;
mod spaces;
