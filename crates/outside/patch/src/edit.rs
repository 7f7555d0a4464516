//! Changes of source texts, and the unified diff that tells them. Made by the files that know a
//! language, merged and shown by the crate's root. Must not know what a change is for.

use crate::error::{Unsure, unsure};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::{Path, PathBuf};

/// A piece of a text that is replaced; an empty piece is an insertion.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Edit {
    start: usize,
    end: usize,
    with: String,
}

/// Changes of several files, by their paths below the root.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Edits(BTreeMap<PathBuf, BTreeSet<Edit>>);

impl Edits {
    /// Whether nothing changes.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The files that change.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        self.0.keys().map(PathBuf::as_path)
    }

    /// Puts `text` in front of the byte at `at`.
    pub(crate) fn insert(&mut self, file: &Path, at: usize, text: impl Into<String>) {
        self.replace(file, at..at, text);
    }

    /// Puts `text` in the place of these bytes. The same change twice is one change.
    pub(crate) fn replace(&mut self, file: &Path, at: Range<usize>, text: impl Into<String>) {
        self.0.entry(file.to_owned()).or_default().insert(Edit {
            start: at.start,
            end: at.end,
            with: text.into(),
        });
    }

    /// Whether a change replaces the byte at `at`.
    pub(crate) fn touches(&self, file: &Path, at: usize) -> bool {
        let mut edits = self.0.get(file).into_iter().flatten();
        edits.any(|edit| (edit.start..edit.end).contains(&at))
    }

    /// Adds the changes of another finding.
    ///
    /// # Errors
    /// If both change the same bytes in different ways; then nothing is added.
    pub fn merge(&mut self, other: &Self) -> Result<(), Unsure> {
        let mut merged = self.clone();
        for (file, edits) in &other.0 {
            merged
                .0
                .entry(file.clone())
                .or_default()
                .extend(edits.iter().cloned());
        }
        for (file, edits) in &merged.0 {
            let ordered: Vec<&Edit> = edits.iter().collect();
            let clash = ordered.windows(2).any(|pair| {
                pair[1].start < pair[0].end
                    || pair[0].start < pair[0].end && pair[1].start == pair[0].start
            });
            if clash {
                unsure!(
                    "another finding changes the same lines of {}: apply its patch, run `sunder detect` again, \
                     and then patch what is left",
                    file.display()
                );
            }
        }
        *self = merged;
        Ok(())
    }

    /// The text of `file` after the changes.
    pub fn applied(&self, file: &Path, text: &str) -> String {
        let mut out = String::with_capacity(text.len() + 256);
        let mut from = 0;
        for edit in self.0.get(file).into_iter().flatten() {
            out.push_str(&text[from..edit.start]);
            out.push_str(&edit.with);
            from = edit.end;
        }
        out.push_str(&text[from..]);
        out
    }
}

/// A unified diff of one file, which `patch -p1` takes.
pub(crate) fn unified(file: &Path, old: &str, new: &str) -> String {
    let name = file.display();
    similar::TextDiff::from_lines(old, new)
        .unified_diff()
        .context_radius(3)
        .header(&format!("a/{name}"), &format!("b/{name}"))
        .to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edits_apply_to_the_old_text() {
        let file = Path::new("a.c");
        let mut edits = Edits::default();
        edits.replace(file, 4..5, "count");
        edits.insert(file, 0, "static ");
        edits.insert(file, 0, "static ");
        assert_eq!(edits.applied(file, "int a;\n"), "static int count;\n");
        assert_eq!(edits.applied(Path::new("b.c"), "x"), "x");
    }

    #[test]
    fn what_clashes_is_not_merged() {
        let file = Path::new("a.c");
        let (mut one, mut two) = (Edits::default(), Edits::default());
        one.replace(file, 0..4, "x");
        two.replace(file, 2..5, "y");
        let before = one.clone();
        assert!(one.merge(&two).is_err());
        assert_eq!(one, before);
        let mut three = Edits::default();
        three.insert(file, 4, "z");
        assert_eq!(one.merge(&three), Ok(()));
        assert_eq!(one.applied(file, "abcdef"), "xzef");
    }

    #[test]
    fn a_diff_has_the_form_that_patch_takes() {
        let told = unified(Path::new("src/a.c"), "a\nb\n", "a\nc\n");
        assert_eq!(
            told,
            "--- a/src/a.c\n+++ b/src/a.c\n@@ -1,2 +1,2 @@\n a\n-b\n+c\n"
        );
    }
}
