//! `sunder trace`, `cc`, `c++` and `cargo`: every access of a program is recorded.

#[path = "../support/mod.rs"]
mod support;

mod emulated;
mod ends;
mod full;
mod instrumented;
mod names;
mod rust;
