//! The reading side, on files that the recorder (`crates/inside/recorder`) wrote.

mod pieces;
mod read;
