//! `sunder simulate` and `what-if`: what a recorded program would have cost on another machine or
//! in another layout.

#[path = "../support/mod.rs"]
mod support;

mod clusters;
mod crafted;
mod layouts;
mod order;
mod paged_parts;
mod pages;
mod parts;
mod queries;
mod simulate;
