//! A page as a file, for the node exporter of Prometheus (`--collector.textfile.directory`).

use crate::files::Place;
use std::io;

/// Writes the page to its file. Whoever reads it meanwhile sees the old page or the new one, whole: the node
/// exporter reads names that end in `.prom`.
///
/// # Errors
/// If it can't be written.
pub fn write_page(file: &Place, page: &str) -> io::Result<()> {
    file.put_whole(page.as_bytes())
}
