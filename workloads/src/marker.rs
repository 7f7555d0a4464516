//! Finds marker comments in sources, so that the table can name a source line
//! without its number: `/* alloc: args */`, `// touch: counters`. Called by the
//! table's loader only.

use crate::error::{Error, Result};
use std::path::Path;

/// The line, from 1, of `source` whose comment is exactly `marker`.
///
/// # Errors
/// If it is not there exactly once.
pub(crate) fn line_of(path: &Path, source: &str, marker: &str) -> Result<u32> {
    let found: Vec<u32> = source
        .lines()
        .zip(1..)
        .filter(|(text, _)| comment(text) == Some(marker))
        .map(|(_, line)| line)
        .collect();
    match found[..] {
        [line] => Ok(line),
        _ => Err(Error::Marker {
            path: path.to_owned(),
            marker: marker.to_owned(),
            count: found.len(),
        }),
    }
}

/// The text of the comment that ends the line.
fn comment(line: &str) -> Option<&str> {
    let line = line.trim_end();
    if let Some(body) = line.strip_suffix("*/") {
        return body.rfind("/*").map(|at| body[at + 2..].trim());
    }
    line.rfind("//").map(|at| line[at + 2..].trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str =
        "int x;\np = malloc(8); /* alloc: a */\nq(); // touch: a\n/* alloc: b */ r();\n";

    fn find(marker: &str) -> Option<u32> {
        line_of(Path::new("x.c"), SOURCE, marker).ok()
    }

    #[test]
    fn a_marker_is_found_by_its_whole_text() {
        assert_eq!(find("alloc: a"), Some(2));
        assert_eq!(find("touch: a"), Some(3));
        assert_eq!(find("alloc:"), None);
        assert_eq!(find("a"), None);
    }

    #[test]
    fn a_comment_before_code_is_no_marker() {
        assert_eq!(find("alloc: b"), None);
    }

    #[test]
    fn a_marker_that_occurs_twice_is_refused() {
        let twice = "a(); // touch: x\nb(); // touch: x\n";
        let error = line_of(Path::new("x.c"), twice, "touch: x");
        assert!(matches!(error, Err(Error::Marker { count: 2, .. })));
    }
}
