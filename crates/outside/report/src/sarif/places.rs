//! Where a finding is in the sources: the line to mark, others, and the stacks of allocations.

use super::message::plain;
use crate::clean::clean;
use serde_json::{Map, Value, json};
use std::collections::{BTreeSet, HashMap};
use std::path::{Component, Path, PathBuf};
use sunder_findings::{AccessKind, Finding, Site};

/// The name of the folder of the sources in `uriBaseId`, as viewers know it.
pub(super) const SOURCE_ROOT: &str = "SRCROOT";
/// The most other positions in a result.
const MOST_RELATED: usize = 12;

/// Another position of a result, and what happens there.
#[derive(PartialEq)]
pub(crate) struct Related {
    pub(crate) physical: Value,
    pub(crate) text: String,
    /// `counters.c:19`, for a link.
    pub(super) name: String,
    function: Option<String>,
}

impl Related {
    fn new(uris: &SourceUris, file: &str, line: Option<u32>, text: String) -> Self {
        let short = file.rsplit('/').next().unwrap_or_default();
        let line = line.filter(|&line| line > 0);
        Self {
            physical: uris.physical(file, line),
            text,
            name: line.map_or_else(|| short.to_owned(), |line| format!("{short}:{line}")),
            function: None,
        }
    }

    fn in_function(self, function: &str) -> Self {
        let function = Some(function.to_owned());
        Self { function, ..self }
    }

    /// As the related location with the number `id`.
    pub(super) fn json(&self, id: usize) -> Value {
        let mut place = Map::new();
        place.insert("id".to_owned(), json!(id));
        place.insert("physicalLocation".to_owned(), self.physical.clone());
        place.insert("message".to_owned(), plain(&self.text));
        if let Some(function) = &self.function {
            place.insert("logicalLocations".to_owned(), json!([logical(function)]));
        }
        Value::Object(place)
    }
}

/// The position to mark, and the others: allocation, declaration and more code.
pub(crate) fn locations(finding: &Finding, uris: &SourceUris) -> (Option<Value>, Vec<Related>) {
    let writes_first = |s: &&Site| s.kind == AccessKind::Read;
    let mut sites: Vec<&Site> = finding.sites.iter().filter(|s| s.file.is_some()).collect();
    sites.sort_by_key(writes_first);
    let mut related: Vec<Related> = Vec::new();
    let mut add = |one: Related| {
        if !related.contains(&one) {
            related.push(one);
        }
    };
    for object in std::iter::once(&finding.object).chain(&finding.neighbour) {
        let name = object.short_name();
        if let Some(declared) = &object.declared {
            let text = format!("{name} is declared here");
            add(Related::new(uris, &declared.file, declared.line, text));
        }
        if let Some(frame) = object.allocation_site()
            && let Some(file) = &frame.file
        {
            let text = format!("{name} is allocated here");
            add(Related::new(uris, file, frame.line, text).in_function(&frame.function));
        }
    }
    let main = match sites.first() {
        Some(site) => Some(json!({
            "physicalLocation": uris.physical(site.file.as_deref().unwrap_or_default(), site.line),
            "logicalLocations": [logical(&site.function)],
        })),
        None => related
            .first()
            .map(|first| json!({"physicalLocation": first.physical}))
            .or_else(|| {
                let site = finding.sites.first()?;
                Some(json!({"logicalLocations": [logical(&site.function)]}))
            }),
    };
    let room = MOST_RELATED.saturating_sub(related.len());
    related.extend(other_code(&sites, room, uris));
    related.truncate(MOST_RELATED);
    (main, related)
}

/// The lines of code that use the object, each once, without that of the first site: at most `most`.
fn other_code(sites: &[&Site], most: usize, uris: &SourceUris) -> Vec<Related> {
    // The first site of each line in order, and what all of its sites do.
    let mut lines: Vec<(&Site, BTreeSet<&str>)> = Vec::new();
    let mut numbers: HashMap<_, Option<usize>> = HashMap::new();
    numbers.extend(sites.first().map(|first| (at(first), None)));
    for site in sites {
        let number = numbers.entry(at(site)).or_insert_with(|| {
            let number = lines.len();
            // There may be thousands, and few are shown.
            (number < most).then(|| lines.push((site, BTreeSet::new())))?;
            Some(number)
        });
        if let Some(line) = number.and_then(|number| lines.get_mut(number)) {
            line.1.insert(act(site));
        }
    }
    let described = lines.into_iter().map(|(site, acts)| {
        let acts: Vec<&str> = acts.into_iter().collect();
        let text = match acts.as_slice() {
            [LOCKED] => "a lock on it is taken or given back here".to_owned(),
            _ => format!("also {} here", acts.join(" and ")),
        };
        let file = site.file.as_deref().unwrap_or_default();
        Related::new(uris, file, site.line, text).in_function(&site.function)
    });
    described.collect()
}

fn at(site: &Site) -> (Option<&str>, Option<u32>) {
    (site.file.as_deref(), site.line)
}

const LOCKED: &str = "locked";

/// What a site does to the object.
fn act(site: &Site) -> &'static str {
    match site.kind {
        _ if site.calls.is_some() => LOCKED,
        AccessKind::Read => "read",
        AccessKind::Write => "written",
        AccessKind::Update => "updated",
        AccessKind::Atomic => "updated atomically",
    }
}

/// The call stacks of the allocations of heap objects, innermost call first.
pub(super) fn stacks(finding: &Finding, uris: &SourceUris) -> Vec<Value> {
    let objects = std::iter::once(&finding.object).chain(&finding.neighbour);
    let allocated = objects.filter(|object| !object.allocation.is_empty());
    let mut stacks: Vec<Value> = allocated
        .map(|object| {
            let frames = object.allocation.iter().map(|frame| {
                let mut location = Map::new();
                location.insert("message".to_owned(), plain(&frame.function));
                location.insert(
                    "logicalLocations".to_owned(),
                    json!([logical(&frame.function)]),
                );
                if let Some(file) = &frame.file {
                    location.insert(
                        "physicalLocation".to_owned(),
                        uris.physical(file, frame.line),
                    );
                }
                json!({"location": location})
            });
            json!({
                "message": plain(&format!("{} was allocated by", object.short_name())),
                "frames": frames.collect::<Vec<_>>(),
            })
        })
        .collect();
    // Neighbours on the heap often come from the same call.
    stacks.dedup();
    stacks
}

fn logical(function: &str) -> Value {
    json!({"fullyQualifiedName": clean(function), "kind": "function"})
}

/// The folder against which paths become relative URIs.
pub(crate) struct SourceUris {
    /// The folder; `None` if none is known.
    pub(crate) root: Option<PathBuf>,
}

impl SourceUris {
    fn physical(&self, file: &str, line: Option<u32>) -> Value {
        let mut place = Map::new();
        place.insert("artifactLocation".to_owned(), self.artifact(file));
        if let Some(line) = line.filter(|&l| l > 0) {
            place.insert("region".to_owned(), json!({"startLine": line}));
        }
        Value::Object(place)
    }

    fn artifact(&self, file: &str) -> Value {
        let path = normalized(Path::new(file));
        let below = match &self.root {
            // A relative path in debug information is relative to the compiler's working folder,
            // which is most often the root of the sources.
            Some(_) if path.is_relative() => Some(path.as_path()),
            Some(root) => path.strip_prefix(root).ok(),
            None => None,
        };
        match below {
            Some(inside) if !inside.starts_with("..") => {
                json!({"uri": encoded(inside), "uriBaseId": SOURCE_ROOT})
            }
            _ if path.is_absolute() => json!({"uri": file_uri(&path)}),
            _ => json!({"uri": encoded(&path)}),
        }
    }
}

/// The path without `.` and, as far as its text allows, without `..`.
pub(super) fn normalized(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => match out.components().next_back() {
                Some(Component::Normal(_)) => {
                    out.pop();
                }
                Some(Component::RootDir) => {}
                _ => out.push(".."),
            },
            other => out.push(other),
        }
    }
    out
}

/// The address of a file with an absolute path.
pub(crate) fn file_uri(path: &Path) -> String {
    format!("file://{}", encoded(path))
}

/// RFC 3986: all characters but unreserved ones and `/` in percent notation.
fn encoded(path: &Path) -> String {
    let mut out = String::new();
    for byte in path.to_string_lossy().bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each is made only if it is shown, and knows also what comes long after it.
    #[test]
    fn of_thousands_of_sites_a_few_are_described() {
        let one = Site {
            file: Some("/a.c".to_owned()),
            kind: AccessKind::Write,
            ..sunder_findings::examples::one_writer().sites[0].clone()
        };
        let on = |line| Site {
            line: Some(line),
            ..one.clone()
        };
        let mut all: Vec<Site> = (1..=20_000).map(on).collect();
        all.push(Site {
            kind: AccessKind::Read,
            ..on(2)
        });
        let all: Vec<&Site> = all.iter().collect();
        let told = other_code(&all, 3, &SourceUris { root: None });
        let told: Vec<_> = told.iter().map(|it| (&*it.name, &*it.text)).collect();
        let wanted = [
            ("a.c:2", "also read and written here"),
            ("a.c:3", "also written here"),
            ("a.c:4", "also written here"),
        ];
        assert_eq!(told, wanted);
    }

    #[test]
    fn files_below_the_root_are_relative_to_it() {
        let uris = SourceUris {
            root: Some(PathBuf::from("/home/user/app")),
        };
        for (file, wanted) in [
            (
                "/home/user/app/src/a.c",
                json!({"uri": "src/a.c", "uriBaseId": "SRCROOT"}),
            ),
            (
                "/home/user/app/build/../src/a b.c",
                json!({"uri": "src/a%20b.c", "uriBaseId": "SRCROOT"}),
            ),
            (
                "src/./ü.c",
                json!({"uri": "src/%C3%BC.c", "uriBaseId": "SRCROOT"}),
            ),
            (
                "/home/user/app2/a.c",
                json!({"uri": "file:///home/user/app2/a.c"}),
            ),
            (
                "/home/user/app/../x.c",
                json!({"uri": "file:///home/user/x.c"}),
            ),
            ("../x.c", json!({"uri": "../x.c"})),
            ("C:evil", json!({"uri": "C%3Aevil", "uriBaseId": "SRCROOT"})),
        ] {
            assert_eq!(uris.artifact(file), wanted, "{file}");
        }
        let without_root = SourceUris { root: None };
        assert_eq!(without_root.artifact("/a.c"), json!({"uri": "file:///a.c"}));
        assert_eq!(without_root.artifact("a.c"), json!({"uri": "a.c"}));
    }
}
