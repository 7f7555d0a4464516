//! Reads what watches wrote, and hands it on record by record: files of JSON lines, also packed by gzip,
//! and the batches of OTLP that wait in a spool. What a file is, its bytes say, not its name.
//!
//! Called by the program `sunder` after it has given up its rights: everything here comes from others.
//! Memory is bounded whatever a file holds; what is damaged is counted and passed over. It must not write,
//! and must not judge what the records mean.
#![forbid(unsafe_code)]

mod batch;
mod files;
mod lines;

use anyhow::{Result, bail};
use std::path::PathBuf;
use sunder_fleet::{Fleet, Gather, Reading};

/// Reads files and folders, and sums up what their records told.
///
/// # Errors
/// If a file that is named can't be opened, or there is no record at all.
pub fn read(paths: &[PathBuf]) -> Result<Fleet> {
    let mut gather = Gather::new();
    let mut reading = Reading::default();
    for path in paths {
        files::read(path, &mut gather, &mut reading)?;
    }
    let fleet = gather.finish(reading);
    if fleet.reading.records == 0 {
        bail!(
            "there is no record of `sunder watch` in {}; it writes them with --json FILE or --spool FOLDER",
            named(paths)
        );
    }
    Ok(fleet)
}

/// The paths in a few words.
fn named(paths: &[PathBuf]) -> String {
    match paths {
        [one] => one.display().to_string(),
        several => format!("these {} files and folders", several.len()),
    }
}
