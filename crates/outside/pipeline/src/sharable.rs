//! Restores the names of memory that was made sharable: a remedy that isolates threads maps the
//! target's memory again from a file, which hides what was mapped there before. Pure. Used by
//! `process` for names and verdicts.

use sunder_access::{Mapping, Mappings, Span};

/// The path of that file's mappings.
const SHARABLE: &str = "/memfd:sunder-memory";

/// `now`, in which mappings of that file are replaced by those of `before`.
pub fn as_it_was(before: &Mappings, now: Mappings) -> Mappings {
    let is_sharable = |m: &&Mapping| m.shared && m.path.starts_with(SHARABLE);
    if !now.iter().any(|m| is_sharable(&m)) {
        return now;
    }
    let mut restored = now.clone();
    for new in now.iter().filter(is_sharable) {
        for old in before.iter().filter(|old| !is_sharable(old)) {
            let start = old.span.start.max(new.span.start);
            let end = old.span.end().min(new.span.end());
            if start < end {
                restored.insert(Mapping {
                    span: Span::new(start, end.0 - start.0),
                    file_offset: old.file_offset_of(start),
                    ..old.clone()
                });
            }
        }
    }
    restored
}

#[cfg(test)]
mod tests {
    use super::*;
    use sunder_access::Address;

    fn mapping(start: u64, len: u64, path: &str, offset: u64) -> Mapping {
        Mapping {
            span: Span::new(Address(start), len),
            file_offset: offset,
            path: path.into(),
            inode: 0,
            read: true,
            write: true,
            execute: false,
            shared: path.starts_with("/memfd"),
        }
    }

    fn all(mappings: &[Mapping]) -> Mappings {
        let mut all = Mappings::new();
        mappings.iter().for_each(|m| all.insert(m.clone()));
        all
    }

    #[test]
    fn memory_made_sharable_keeps_its_mapping_s_name() {
        let before = all(&[
            mapping(0x1000, 0x2000, "/bin/x", 0x3000),
            mapping(0x3000, 0x1000, "", 0),
            mapping(0x8000, 0x1000, "[heap]", 0),
        ]);
        let now = all(&[
            mapping(0x1000, 0x1000, "/memfd:sunder-memory (deleted)", 0x1000),
            mapping(0x2000, 0x2000, "/memfd:sunder-memory (deleted)", 0x2000),
            mapping(0x8000, 0x1000, "/memfd:sunder-memory (deleted)", 0x8000),
            mapping(0x9000, 0x1000, "[heap]", 0x1000),
        ]);
        let first = as_it_was(&before, now.clone());
        let at = |m: &Mappings, a: u64| {
            let found = m.at(Address(a)).expect("it is mapped");
            (
                found.path.clone(),
                found.file_offset_of(Address(a)),
                found.shared,
            )
        };
        for seen in [&first, &as_it_was(&first, now)] {
            assert_eq!(at(seen, 0x2800), ("/bin/x".into(), 0x4800, false));
            assert_eq!(at(seen, 0x3800), (String::new(), 0x800, false));
            assert_eq!(at(seen, 0x8800), ("[heap]".into(), 0x800, false));
            assert_eq!(at(seen, 0x9800), ("[heap]".into(), 0x1800, false));
        }
    }

    #[test]
    fn other_memory_files_keep_their_names() {
        let before = all(&[mapping(0x1000, 0x1000, "", 0)]);
        let now = all(&[mapping(0x1000, 0x1000, "/memfd:theirs (deleted)", 0)]);
        assert_eq!(as_it_was(&before, now.clone()), now);
    }
}
