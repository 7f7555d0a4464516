//! A page as a file, for the node exporter of Prometheus (`--collector.textfile.directory`).

use crate::files::put_whole;
use anyhow::{Context, Result};
use std::path::Path;

/// Writes the page to `file`. Whoever reads it meanwhile sees the old page or the new one, whole: the node
/// exporter reads names that end in `.prom`.
///
/// # Errors
/// If it can't be written.
pub fn write_page(file: &Path, page: &str) -> Result<()> {
    put_whole(file, page.as_bytes()).with_context(|| format!("cannot write to {}", file.display()))
}
