//! The changes that are worth trying for a finding, as arguments of `sunder simulate`, so that
//! a user can look at one more closely. Only the replay tells whether they help.

use crate::options::PlacementAsked;
use crate::simulate::changes::Changes;
use crate::simulate::resolve::plain_type;
use std::collections::BTreeMap;
use sunder_findings::{Finding, Object, ObjectKind, file_name};
use sunder_placement::Policy;

/// The most fields of one object that are tried.
const MOST_FIELDS: usize = 4;
/// A granule of more bytes is a page, not a cache line.
const LARGEST_LINE: u64 = 256;

/// A change to try.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The rank of the finding that it is for; `None` for the heap as a whole.
    pub finding: Option<u32>,
    /// The change as a sentence.
    pub words: String,
    /// What `simulate` is asked for.
    pub asked: Changes,
}

impl Candidate {
    /// The arguments of `sunder simulate`.
    pub fn arguments(&self) -> Vec<String> {
        let mut all = Vec::new();
        if let PlacementAsked::Policy(policy) = &self.asked.placement {
            all.extend(["--placement".to_owned(), policy.to_string()]);
        }
        for pad in &self.asked.pad {
            all.extend(["--pad".to_owned(), pad.clone()]);
        }
        for (object, bytes) in &self.asked.align {
            all.extend(["--align".to_owned(), format!("{object}={bytes}")]);
        }
        all
    }
}

/// The placement of the heap by each policy.
pub fn of_heap() -> impl Iterator<Item = Candidate> {
    Policy::ALL.into_iter().map(|policy| {
        let words = match policy {
            Policy::General => "one heap for all threads, as glibc's",
            Policy::Hoard => "a heap for each thread",
            Policy::Sized => "objects of one size on a page",
            Policy::CallSite => "objects of one call site on a page",
            Policy::SizedCallSite => "objects of one size and call site on a page",
        };
        Candidate {
            finding: None,
            words: words.to_owned(),
            asked: Changes {
                placement: PlacementAsked::Policy(policy),
                ..Changes::default()
            },
        }
    })
}

/// The changes that may take the objects of `finding` apart, with lines (or pages) of `line`
/// bytes.
pub fn of_finding(finding: &Finding, line: u64) -> Vec<Candidate> {
    let mut all: Vec<Candidate> = Vec::new();
    let mut add = |words: String, asked: Changes| {
        if all.iter().all(|known| known.asked != asked) {
            all.push(Candidate {
                finding: Some(finding.rank),
                words,
                asked,
            });
        }
    };
    let lines = unit(line);
    for object in std::iter::once(&finding.object).chain(&finding.neighbour) {
        let Some(name) = name_of(object) else {
            continue;
        };
        let what = match object.kind {
            ObjectKind::Heap => format!("the blocks from {name}"),
            _ => format!("`{name}`"),
        };
        let align = Changes {
            align: vec![(name.clone(), line)],
            ..Changes::default()
        };
        let own = match object.kind {
            ObjectKind::Heap => "their",
            _ => "its",
        };
        add(format!("give {what} {lines} of {own} own"), align);
        if is_array(object) {
            let pad = vec![format!("{name}[]")];
            let asked = Changes {
                pad,
                ..Changes::default()
            };
            add(
                format!("give each element of {what} {lines} of its own"),
                asked,
            );
        }
    }
    let fields = fields(finding);
    for field in &fields {
        let asked = Changes {
            pad: vec![field.clone()],
            ..Changes::default()
        };
        add(format!("give `{field}` {lines} of its own"), asked);
    }
    if fields.len() > 2 {
        let many = fields.len();
        let asked = Changes {
            pad: fields,
            ..Changes::default()
        };
        add(
            format!("give each of these {many} fields {lines} of its own"),
            asked,
        );
    }
    all
}

/// The name of a granule of this many bytes.
const fn unit(bytes: u64) -> &'static str {
    if bytes > LARGEST_LINE {
        "pages"
    } else {
        "lines"
    }
}

/// The object's name on the command line: a global's name, a heap block's call site.
fn name_of(object: &Object) -> Option<String> {
    match object.kind {
        ObjectKind::Global => object.name.clone(),
        ObjectKind::Heap => {
            let site = object.allocation_site()?;
            Some(match (&site.file, site.line) {
                (Some(file), Some(line)) => format!("{}:{line}", file_name(file)),
                _ => site
                    .offset
                    .map_or_else(|| site.function.clone(), |offset| offset.to_string()),
            })
        }
        _ => None,
    }
}

fn is_array(object: &Object) -> bool {
    let elements = object.size.zip(object.element_size);
    elements.is_some_and(|(size, element)| element > 0 && size / element >= 2)
}

/// The fields that threads write, as `TYPE.FIELD`, the most written first.
fn fields(finding: &Finding) -> Vec<String> {
    let object = &finding.object;
    let Some(of) = object.type_name.as_deref().map(plain_type) else {
        return Vec::new();
    };
    let mut written: BTreeMap<String, u64> = BTreeMap::new();
    for word in finding.lines.iter().flat_map(|line| &line.words) {
        let path = word.field.as_deref().unwrap_or_default();
        let path = match object.kind {
            ObjectKind::Heap => path,
            _ => path
                .strip_prefix(object.name.as_deref().unwrap_or_default())
                .unwrap_or(path),
        };
        if let Some(field) = top_field(path)
            && word.stores() > 0
        {
            let stores = written.entry(format!("{of}.{field}")).or_default();
            *stores = stores.saturating_add(word.stores());
        }
    }
    let mut fields: Vec<(String, u64)> = written.into_iter().collect();
    fields.sort_by_key(|(_, stores)| std::cmp::Reverse(*stores));
    let kept = fields.into_iter().take(MOST_FIELDS);
    kept.map(|(field, _)| field).collect()
}

/// The top field of a path: `hits` for `[3].hits.low`.
fn top_field(path: &str) -> Option<&str> {
    let mut rest = path;
    while let Some(inside) = rest.strip_prefix('[') {
        rest = inside.split_once(']')?.1;
    }
    let name = rest.strip_prefix('.')?.split(['.', '[', ' ']).next()?;
    let real = !name.is_empty() && !name.starts_with(['<', '{', '+']);
    real.then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use sunder_findings::{Frame, Line, ThreadUse, Word};

    fn word(field: &str, writes: u64) -> Word {
        Word {
            field: Some(field.to_owned()),
            threads: vec![ThreadUse {
                writes,
                ..ThreadUse::default()
            }],
            ..Word::default()
        }
    }

    fn finding(object: Object, words: Vec<Word>) -> Finding {
        Finding {
            rank: 3,
            object,
            lines: vec![Line {
                words,
                ..Line::default()
            }],
            ..Finding::default()
        }
    }

    fn arguments(finding: &Finding) -> Vec<String> {
        let all = of_finding(finding, 64);
        assert!(all.iter().all(|c| c.finding == Some(3)));
        all.iter().map(|c| c.arguments().join(" ")).collect()
    }

    #[test]
    fn a_global_array_of_structs_may_be_aligned_or_padded() {
        let stats = Object {
            kind: ObjectKind::Global,
            name: Some("stats".into()),
            type_name: Some("struct thread_stats[64]".into()),
            size: Some(1024),
            element_size: Some(16),
            ..Object::default()
        };
        let words = vec![word("stats[0].requests", 5), word("stats[1].bytes", 9)];
        assert_eq!(
            arguments(&finding(stats, words)),
            [
                "--align stats=64",
                "--pad stats[]",
                "--pad thread_stats.bytes",
                "--pad thread_stats.requests",
            ]
        );
    }

    #[test]
    fn blocks_are_named_by_their_call_site_and_reads_pad_nothing() {
        let block = Object {
            kind: ObjectKind::Heap,
            type_name: Some("struct pair".into()),
            size: Some(16),
            element_size: Some(16),
            allocation: vec![Frame {
                function: "make".into(),
                file: Some("/src/pairs.c".into()),
                line: Some(7),
                ..Frame::default()
            }],
            ..Object::default()
        };
        let words = vec![word(".first", 5), word(".second", 0)];
        assert_eq!(
            arguments(&finding(block, words)),
            ["--align pairs.c:7=64", "--pad pair.first"]
        );
    }

    #[test]
    fn an_object_without_a_name_gets_no_change() {
        let unknown = Object::default();
        assert!(of_finding(&finding(unknown, vec![]), 64).is_empty());
    }

    #[test]
    fn fields_are_those_of_the_element() {
        assert_eq!(top_field("[3].hits.low"), Some("hits"));
        assert_eq!(top_field(".hits[4]"), Some("hits"));
        assert_eq!(top_field("[1][2].x"), Some("x"));
        for none in ["", "[3]", ".<padding>", ".{a|b}", "+17"] {
            assert_eq!(top_field(none), None, "{none}");
        }
    }
}
