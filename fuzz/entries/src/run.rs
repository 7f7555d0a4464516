//! Recordings of runs, as `sunder report` judges them again. The bytes are the steps: length, checksum
//! and compression around them are sound.

use crate::file::holding;
use std::fs::File;
use sunder_pipeline::rejudge;
use sunder_recording::craft;

/// Judges arbitrary steps.
///
/// # Panics
/// If the result of a recording can't be written.
pub fn run(bytes: &[u8]) {
    let kept = holding(&craft::recording(bytes));
    let open = || File::open(kept.path()).expect("it was just made");
    for line in [None, Some(128)] {
        if let Ok(done) = rejudge(&open(), line, None) {
            done.findings
                .to_json()
                .expect("every result can be written");
        }
    }
}
