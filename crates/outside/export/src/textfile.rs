//! A page as a file, for the node exporter of Prometheus (`--collector.textfile.directory`).

use anyhow::{Context, Result};
use std::fs;
use std::path::Path;

/// Writes the page to `file`. Whoever reads it meanwhile sees the old page or the new one, whole.
///
/// # Errors
/// If it can't be written.
pub fn write_page(file: &Path, page: &str) -> Result<()> {
    // The node exporter reads names that end in `.prom`.
    let aside = file.with_extension("prom.new");
    let written = fs::write(&aside, page).and_then(|()| fs::rename(&aside, file));
    written.with_context(|| format!("cannot write to {}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_replaces_the_one_before() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("sunder.prom");
        for page in ["a long page\n", "short\n"] {
            write_page(&file, page).expect("it is written");
            assert_eq!(fs::read_to_string(&file).expect("it is there"), page);
        }
        assert_eq!(fs::read_dir(folder.path()).expect("it is there").count(), 1);
        assert!(write_page(Path::new("/nowhere/sunder.prom"), "").is_err());
    }
}
