//! Results in files: saved, read, compared, and made from a recording of `perf`.

use crate::{Error, Findings, Result};
use std::path::Path;
pub use sunder_findings::Comparison;

/// Reads a result that was saved as JSON, of this version or an earlier one.
///
/// # Errors
/// If the file can't be read or holds no result.
pub fn open(path: impl AsRef<Path>) -> Result<Findings> {
    let path = path.as_ref();
    Findings::open(path).map_err(|error| Error::of_file(path, &error))
}

/// Saves a result as JSON, in the published schema.
///
/// # Errors
/// If the file can't be written.
pub fn save(findings: &Findings, path: impl AsRef<Path>) -> Result<()> {
    let path = path.as_ref();
    let text = findings.to_json().map_err(|e| Error::of_file(path, &e))?;
    std::fs::write(path, text + "\n").map_err(|error| Error::File {
        path: path.to_owned(),
        why: error.to_string(),
    })
}

/// What appeared, went away, grew or shrank from one result to another.
///
/// ```
/// let (old, new) = (sunder::Findings::default(), sunder::Findings::default());
/// assert!(!sunder::diff(&old, &new).is_worse());
/// ```
pub fn diff(old: &Findings, new: &Findings) -> Comparison {
    sunder_findings::compare(old, new)
}

/// The findings of a `perf.data` file with user registers, or of `perf mem` or `perf c2c`.
///
/// # Errors
/// If the file is no such recording, or holds nothing that can be judged.
pub fn import(path: impl AsRef<Path>) -> Result<Findings> {
    Ok(sunder_pipeline::import(path.as_ref(), None, None)?)
}
