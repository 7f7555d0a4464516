//! What Sunder found: the versioned result that every report, comparison and
//! remedy starts from.
//!
//! A [`Findings`] value is complete in itself: rendering it needs neither the
//! program nor the machine that it came from. Used by the pipeline, which fills it, and by
//! advice, reports, remedies and the evaluation, which read it. This crate must not look at
//! the target or at raw accesses.
#![forbid(unsafe_code)]

mod address;
mod comparison;
mod error;
#[cfg(feature = "examples")]
pub mod examples;
mod file;
mod fingerprint;
mod gain;
mod isolation;
mod language;
mod likeness;
mod limit;
mod object;
mod ranking;
mod repair;
mod schema;
mod sharing;
mod shown;
mod simulation;
mod subject;
mod topic;
mod verdict;
mod watched;

pub use comparison::{Change, Comparison, Measure, NOISE_FACTOR, NOISE_PERCENT, compare};
pub use error::{FindingsError, LARGEST_FILE};
#[cfg(feature = "schema")]
pub use file::json_schema;
pub use fingerprint::fingerprint;
pub use gain::{GainPercent, OnMoreCpus};
pub use isolation::{PageState, PageWriter, PrivatePage};
pub use language::Language;
pub use limit::Limit;
pub use object::*;
pub use ranking::{DEFAULT_THRESHOLD_PERCENT, Standing, rank};
pub use repair::{
    Cure, FaultsSoFar, IsolatedObject, Move, Moved, MovedGroup, PlacedObject, Progress, Repair,
    RewrittenCode, RolledBack, ThreadProgress, Unrepaired,
};
pub use schema::*;
pub use sharing::Sharing;
pub use shown::{Shown, escaped_json};
pub use simulation::*;
pub use subject::{file_name, normalized_field};
pub use sunder_access::{Address, CodeAddress, LinkAddress};
pub use topic::topics;
pub use verdict::{Answer, FEW_SAMPLES, Reason, Verdict};
pub use watched::*;
