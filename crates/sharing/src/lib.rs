//! The judge.
#![forbid(unsafe_code)]

mod activity;
mod burst;
mod bytes;
mod config;
mod footprint;
mod hash;
mod input;
mod judge;
mod latent;
mod line;
mod near;
mod once;
mod stretch;
mod suspect;
mod verdict;

pub use activity::Timeline;
pub use bytes::ByteState;
pub use config::{CONFIRMING_CHANGES, Config, Error, MIN_EVIDENCE, MIXED_FROM, SAMPLES_PER_WINDOW};
pub use input::{Burst, Sample};
pub use judge::{Counts, Judge, ThreadTime};
pub use latent::{Latent, LatentAlignment, LatentWord};
pub use suspect::{Suspect, WATCHED_WORDS};
pub use verdict::{Confidence, Sharing, SiteUse, ThreadCost, ThreadUse, Verdict, WordUse};
