//! The reading side, on files that the recorder (`crates/inside/recorder`) wrote, and on crafted
//! ones.

mod crafted;
mod pieces;
mod read;
