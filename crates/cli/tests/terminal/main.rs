//! What Sunder draws on a terminal, as `tmux` shows it.

#[path = "../support/mod.rs"]
mod support;

mod progress;
mod repairs;
mod screen;
mod top;
