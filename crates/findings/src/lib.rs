//! What Sunder found: the versioned result that every report, comparison and
//! remedy starts from.
//!
//! A [`Findings`] value is complete in itself: rendering it needs neither the
//! program nor the machine that it came from. This crate must not look at the
//! target or at raw accesses.
#![forbid(unsafe_code)]

mod schema;

pub use schema::*;
