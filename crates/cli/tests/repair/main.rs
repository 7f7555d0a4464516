//! `sunder repair`: bytes are moved inside a running program, which does not notice.

#[path = "../support/mod.rs"]
mod support;

mod calls;
mod chaos;
mod clocks;
mod groups;
mod in_common;
mod late;
mod layouts;
mod libraries;
mod own_calls;
mod shown;
mod sockets;
mod stacks;
mod started;
mod strings;
mod transparent;
