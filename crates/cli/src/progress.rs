//! The lines on a terminal that show the progress of a command. They are on standard error, and only
//! if that is a terminal.

mod bottom;
mod observations;
mod replays;

pub use observations::{Observing, Until};
pub use replays::{OfRecording, of_replays};
