//! `sunder simulate` and `what-if`: what a recorded program would have cost on another machine or
//! in another layout.

#[path = "../support/mod.rs"]
mod support;

mod crafted;
mod layouts;
mod pages;
mod simulate;
