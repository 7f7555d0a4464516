//! `sunder attach` and `attach --repair`: programs that somebody else started.

#[path = "../support/mod.rs"]
mod support;

mod hostile;
mod killed;
mod observed;
mod repaired;
