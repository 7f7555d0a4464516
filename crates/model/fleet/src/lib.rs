//! Sums up what many watches told: which object of which build costs how much, on how many machines,
//! since when, and which build brought or mended it.
//!
//! Called with the records one after another, in any order, by what reads files; its result is shown by
//! the reports. Each figure is a maximum of a count that only grows, a first or a last time, so a record
//! that is read twice changes nothing. This crate must not read files or know the time, and it must not
//! compare the clocks of two machines where one of them suffices.
#![forbid(unsafe_code)]

mod builds;
#[cfg(feature = "examples")]
pub mod examples;
mod finish;
mod gather;
mod hosts;
mod line;
mod names;
mod objects;
mod presence;
mod summary;

pub use gather::Gather;
pub use line::{Figures, Labelled, Wrong};
pub use summary::{
    Blind, BuildCost, FLEET_SCHEMA, FLEET_VERSION, Fleet, FleetContainer, FleetHost, FleetObject,
    Reading, Step,
};
