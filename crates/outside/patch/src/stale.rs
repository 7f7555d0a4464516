//! Whether the source is still the one that the program was built from: the result has the text of
//! the lines that touched the data.

use crate::error::{Unsure, unsure};
use crate::sources::Sources;
use sunder_findings::Finding;

/// # Errors
/// If a line has another text now.
pub(crate) fn check(sources: &Sources, finding: &Finding) -> Result<(), Unsure> {
    for site in &finding.sites {
        let (Some(file), Some(line), Some(text)) = (&site.file, site.line, &site.source) else {
            continue;
        };
        let Ok(path) = sources.locate(file) else {
            continue;
        };
        let Ok(source) = sources.source(&path) else {
            continue;
        };
        // Reports shorten long lines.
        let told = text.trim().trim_end_matches('…').trim_end();
        let now = source.line(line).unwrap_or_default().trim();
        if !now.starts_with(told) {
            unsure!(
                "line {line} of {} is not what the program was built from: the source has changed since",
                path.display()
            );
        }
    }
    Ok(())
}
