//! The subject of a finding in a few words, and the plain questions of every reader of a
//! finding: which threads, which fields, which allocation. Layout and colour are the reports'
//! work.

use crate::object::{Frame, Location, Object, ObjectKind, Thread};
use crate::schema::{Finding, ThreadUse, Word};
use std::collections::{BTreeMap, BTreeSet};

/// The last component of a path.
pub fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// A field path without element numbers (`a[3].x` becomes `a[].x`): which elements a run saw
/// depends on chance and on the number of threads.
pub fn normalized_field(field: &str) -> String {
    let mut out = String::with_capacity(field.len());
    let mut rest = field;
    while let Some(open) = rest.find('[') {
        let (before, from) = rest.split_at(open + 1);
        out.push_str(before);
        let digits = from
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(from.len());
        rest = if from[digits..].starts_with(']') {
            &from[digits..]
        } else {
            from
        };
    }
    out.push_str(rest);
    out
}

impl Finding {
    /// Whether the object has bytes before, and bytes behind, the listed lines, each of `line_size` bytes.
    /// They are on other lines, and a change of the layout must not bring them onto these. Both
    /// are false where it is not known: without the object's size or its place on a line, where not all
    /// lines are listed, and for two objects.
    pub fn lies_beyond(&self, line_size: u32) -> (bool, bool) {
        let starts: Option<Vec<i64>> = self.lines.iter().map(|line| line.object_offset).collect();
        let (Some(starts), Some(size), 0, None) = (
            starts,
            self.object.size,
            self.further_lines,
            &self.neighbour,
        ) else {
            return (false, false);
        };
        let (Some(&first), Some(&last)) = (starts.iter().min(), starts.iter().max()) else {
            return (false, false);
        };
        let end = last.saturating_add(i64::from(line_size));
        (first > 0, i64::try_from(size).is_ok_and(|size| size > end))
    }

    /// All threads that touch it, by ascending number.
    pub fn threads(&self) -> Vec<Thread> {
        let mut seen: BTreeMap<u32, Option<&str>> = BTreeMap::new();
        let uses = self
            .lines
            .iter()
            .flat_map(|l| &l.words)
            .flat_map(|w| &w.threads);
        for one in uses {
            let name = seen.entry(one.id).or_default();
            *name = name.or(one.name.as_deref());
        }
        seen.into_iter()
            .map(|(id, name)| Thread {
                id,
                name: name.map(str::to_owned),
            })
            .collect()
    }

    /// The fields that any thread writes, without element numbers.
    pub fn written_fields(&self) -> BTreeSet<String> {
        self.lines
            .iter()
            .flat_map(|l| &l.words)
            .filter(|w| w.stores() > 0)
            .filter_map(|w| w.field.as_deref())
            .map(normalized_field)
            .collect()
    }

    /// What is shared, in a few words: `counters (struct counter[8])`, or
    /// `a and b` for two neighbours.
    pub fn subject(&self) -> String {
        match &self.neighbour {
            None => self.object.subject(),
            Some(other) if self.object.is_like(other) => {
                let two = match self.object.kind {
                    ObjectKind::Unknown => "two pieces of memory".to_owned(),
                    kind => format!("two {}s", kind.words()),
                };
                match (self.object.type_name.as_deref(), self.object.size) {
                    (Some(of), _) => format!("{two} of {of}"),
                    (None, Some(size)) => format!("{two} of {size} bytes"),
                    (None, None) => two,
                }
            }
            Some(other) => format!("{} and {}", self.object.subject(), other.subject()),
        }
    }

    /// The first place for a reader to look at: the declaration or allocation of the object,
    /// else the busiest code.
    pub fn place(&self) -> Option<Location> {
        self.object.place().or_else(|| {
            self.sites.iter().find_map(|s| {
                Some(Location {
                    file: s.file.clone()?,
                    line: s.line,
                })
            })
        })
    }
}

impl ThreadUse {
    /// All observed accesses.
    pub fn accesses(&self) -> u64 {
        self.reads.saturating_add(self.stores())
    }

    /// The observed accesses that write.
    pub fn stores(&self) -> u64 {
        self.writes.saturating_add(self.updates)
    }
}

impl Word {
    /// All observed accesses of all threads.
    pub fn accesses(&self) -> u64 {
        let all = self.threads.iter().map(ThreadUse::accesses);
        all.fold(0, u64::saturating_add)
    }

    /// The observed accesses of all threads that write.
    pub fn stores(&self) -> u64 {
        let all = self.threads.iter().map(ThreadUse::stores);
        all.fold(0, u64::saturating_add)
    }
}

impl Object {
    /// The frame that decides what the memory is for: the innermost one of the user's own code,
    /// not of an allocator, of a wrapper of it or of a language's library. The innermost of all if
    /// none is the user's.
    pub fn allocation_site(&self) -> Option<&Frame> {
        let own = |f: &&Frame| f.file.is_some() && !f.is_library();
        self.allocation
            .iter()
            .find(|f| own(f) && !f.wrapper)
            .or_else(|| self.allocation.iter().find(own))
            .or_else(|| self.allocation.iter().find(|f| !f.is_library()))
            .or_else(|| self.allocation.first())
    }

    /// The declaration or, for heap objects, the allocation site.
    pub fn place(&self) -> Option<Location> {
        self.declared.clone().or_else(|| {
            let frame = self.allocation_site()?;
            Some(Location {
                file: frame.file.clone()?,
                line: frame.line,
            })
        })
    }

    /// Whether the two have the same description and no names.
    fn is_like(&self, other: &Self) -> bool {
        self.name.is_none()
            && (self.kind, &self.name, &self.type_name, self.size)
                == (other.kind, &other.name, &other.type_name, other.size)
    }

    /// Whether it is a thread's stack as a whole, of which nobody wrote the name: what lies there is a
    /// variable that is not known.
    pub fn is_bare_stack(&self) -> bool {
        let name = self.name.as_deref();
        self.kind == ObjectKind::Stack
            && self.declared.is_none()
            && name.is_none_or(|n| n.starts_with("stack of ") || n.starts_with('['))
    }

    /// The object in a few words: name and type if known, else kind and size.
    pub fn subject(&self) -> String {
        let kind = self.kind.words();
        match (self.name.as_deref(), self.type_name.as_deref()) {
            (Some(name), Some(of)) if self.name_is_local => format!("{of} ({name})"),
            (Some(name), Some(of)) if name != of => format!("{name} ({of})"),
            (Some(name), _) | (None, Some(name)) if self.kind == ObjectKind::Heap => {
                format!("{name} on the heap")
            }
            (Some(name), _) | (None, Some(name)) => name.to_owned(),
            (None, None) => match self.size {
                Some(size) => format!("{kind} of {size} bytes"),
                None if self.blocks.is_some() => format!("{kind}s of several sizes"),
                None => format!("{kind} at {}", self.address),
            },
        }
    }

    /// What distinguishes it from other objects on a page: its name, or where it was allocated.
    pub fn label(&self) -> String {
        if let Some(name) = &self.name {
            return name.clone();
        }
        let site = self.allocation_site();
        match site.map(|s| (s.function.as_str(), s.file.as_deref(), s.line)) {
            Some((_, Some(file), Some(line))) => format!("{}:{line}", crate::file_name(file)),
            Some((function, ..)) if !function.is_empty() => function.to_owned(),
            _ => self.subject(),
        }
    }

    /// Its name, else its type, else its kind: a short name for messages. The type comes first
    /// where the name is only a local variable's.
    pub fn short_name(&self) -> &str {
        let (name, of) = (self.name.as_deref(), self.type_name.as_deref());
        let (first, second) = if self.name_is_local {
            (of, name)
        } else {
            (name, of)
        };
        first.or(second).unwrap_or_else(|| self.kind.words())
    }
}

impl ObjectKind {
    /// The kind, as a noun.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Heap => "heap block",
            Self::Global => "global",
            Self::Tls => "thread-local variable",
            Self::Stack => "stack variable",
            Self::Mapping => "mapping",
            Self::Unknown => "memory",
        }
    }
}

impl Frame {
    /// Whether it belongs to an allocator, to the start of a program or thread, or to the C++
    /// or Rust library.
    pub fn is_library(&self) -> bool {
        const FUNCTIONS: [&str; 14] = [
            "malloc",
            "calloc",
            "realloc",
            "reallocarray",
            "memalign",
            "aligned_alloc",
            "posix_memalign",
            "valloc",
            "strdup",
            "mmap",
            "_start",
            "start_thread",
            "__clone3",
            "clone3",
        ];
        const PREFIXES: [&str; 10] = [
            "operator new",
            "std::",
            "__gnu_cxx::",
            "core::",
            "alloc::",
            "<alloc::",
            "<core::",
            "__rust",
            "__rdl_",
            "__libc_start_",
        ];
        const FOLDERS: [&str; 3] = ["/usr/include/c++/", "/usr/lib/gcc/", "/rustc/"];
        // Without debug information, a symbol has an offset.
        let function = self.function.split("+0x").next().unwrap_or_default();
        FUNCTIONS.contains(&function)
            || PREFIXES.iter().any(|n| self.function.starts_with(n))
            || self
                .file
                .as_deref()
                .is_some_and(|f| FOLDERS.iter().any(|d| f.starts_with(d)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::Line;

    #[test]
    fn what_lies_beyond_the_lines_is_known_only_if_all_is() {
        let line = |offset| Line {
            object_offset: offset,
            ..Line::default()
        };
        let mut finding = Finding {
            lines: vec![line(Some(64)), line(Some(0))],
            ..Finding::default()
        };
        finding.object.size = Some(128);
        assert_eq!(finding.lies_beyond(64), (false, false));
        finding.object.size = Some(129);
        assert_eq!(finding.lies_beyond(64), (false, true));
        // The object begins in the middle of a line, or a line before.
        finding.lines = vec![line(Some(-48))];
        assert_eq!(finding.lies_beyond(64), (false, true));
        finding.lines = vec![line(Some(16))];
        assert_eq!(finding.lies_beyond(64), (true, true));
        for unknown in [
            Finding {
                lines: vec![line(Some(16)), line(None)],
                ..finding.clone()
            },
            Finding {
                further_lines: 1,
                ..finding.clone()
            },
            Finding {
                neighbour: Some(Object::default()),
                ..finding.clone()
            },
            Finding {
                object: Object::default(),
                ..finding.clone()
            },
            Finding::default(),
        ] {
            assert_eq!(unknown.lies_beyond(64), (false, false), "{unknown:?}");
        }
    }

    #[test]
    fn element_numbers_are_taken_out_of_fields() {
        assert_eq!(normalized_field("counters[3].hits"), "counters[].hits");
        assert_eq!(normalized_field("a[1][22].x"), "a[][].x");
        assert_eq!(normalized_field("map[key]"), "map[key]");
        assert_eq!(normalized_field("open["), "open[");
        assert_eq!(normalized_field("ü[7"), "ü[7");
    }

    fn frame(function: &str, file: Option<&str>) -> Frame {
        Frame {
            function: function.into(),
            file: file.map(str::to_owned),
            ..Frame::default()
        }
    }

    #[test]
    fn the_allocation_site_is_the_users_own_frame() {
        let object = Object {
            allocation: vec![
                frame("malloc", None),
                frame(
                    "operator new(unsigned long)",
                    Some("../libsupc++/new_op.cc"),
                ),
                frame(
                    "std::vector<long>::reserve",
                    Some("/usr/include/c++/12/bits/vector.tcc"),
                ),
                frame("app::start", Some("/src/app.cpp")),
                frame("main", Some("/src/main.cpp")),
            ],
            ..Object::default()
        };
        assert_eq!(
            object.allocation_site().map(|f| f.function.as_str()),
            Some("app::start")
        );
    }

    #[test]
    fn the_allocation_site_is_the_caller_of_a_wrapper() {
        let wrapper = |function: &str| Frame {
            wrapper: true,
            ..frame(function, Some("/src/alloc.h"))
        };
        let mut object = Object {
            allocation: vec![
                frame("calloc", None),
                wrapper("CALLOC"),
                wrapper("pool_get"),
                frame("start", Some("/src/app.c")),
            ],
            ..Object::default()
        };
        let site = |object: &Object| object.allocation_site().map(|f| f.function.clone());
        assert_eq!(site(&object).as_deref(), Some("start"));
        // A stack that was cut.
        object.allocation.pop();
        assert_eq!(site(&object).as_deref(), Some("CALLOC"));
    }

    #[test]
    fn a_local_variable_says_less_than_a_type() {
        let mut object = Object {
            kind: ObjectKind::Heap,
            name: Some("w".into()),
            type_name: Some("struct worker".into()),
            name_is_local: true,
            ..Object::default()
        };
        assert_eq!(object.subject(), "struct worker (w)");
        assert_eq!(object.short_name(), "struct worker");
        object.name_is_local = false;
        assert_eq!(object.subject(), "w (struct worker)");
        assert_eq!(object.short_name(), "w");
    }

    #[test]
    fn program_startup_code_is_not_user_code() {
        for library in [
            "_start+0x21",
            "__libc_start_call_main",
            "__libc_start_main_impl",
            "start_thread",
            "malloc",
            "__rust_alloc",
        ] {
            assert!(frame(library, Some("x.c")).is_library(), "{library}");
        }
        for own in ["main", "start", "mallocate", "_start_all", "clone"] {
            assert!(!frame(own, Some("x.c")).is_library(), "{own}");
        }
    }

    #[test]
    fn without_a_user_frame_the_innermost_frame_is_the_allocation_site() {
        let object = Object {
            allocation: vec![frame("malloc", None), frame("_start", None)],
            ..Object::default()
        };
        assert_eq!(
            object.allocation_site().map(|f| f.function.as_str()),
            Some("malloc")
        );
        assert_eq!(object.place(), None);
    }
}
