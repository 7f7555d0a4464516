//! Holds the workspace against the tables of `docs/ARCHITECTURE.md`: a crate lies in the room that
//! the table names, and uses what its row allows, and nothing else.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// The rows of the table whose heading's first cell is `head`: cells without their spaces.
fn rows<'a>(text: &'a str, head: &str) -> Vec<Vec<&'a str>> {
    let cells = |line: &'a str| -> Vec<&'a str> {
        let inner = line.trim().trim_matches('|');
        inner.split('|').map(str::trim).collect()
    };
    text.lines()
        .skip_while(|line| !line.starts_with('|') || cells(line)[0] != head)
        .skip(2)
        .take_while(|line| line.starts_with('|'))
        .map(cells)
        .collect()
}

/// What stands between backticks.
fn names(cell: &str) -> Vec<&str> {
    cell.split('`').skip(1).step_by(2).collect()
}

struct Architecture {
    /// What each folder may use.
    folders: BTreeMap<String, BTreeSet<String>>,
    /// What each room may use, by its path below `crates` or the root.
    rooms: BTreeMap<String, BTreeSet<String>>,
}

impl Architecture {
    fn read(text: &str) -> Self {
        let table = |head| {
            rows(text, head)
                .iter()
                .map(|row| {
                    let uses = if head == "folder" { row[2] } else { row[1] };
                    let name = names(row[0])[0].to_owned();
                    let uses = names(uses).into_iter().map(str::to_owned).collect();
                    (name, uses)
                })
                .collect()
        };
        Self {
            folders: table("folder"),
            rooms: table("room"),
        }
    }

    /// The path of the room of this short name.
    fn path_of(&self, short: &str) -> Option<&str> {
        let of_this_name = |path: &&String| path.rsplit('/').next() == Some(short);
        self.rooms.keys().find(of_this_name).map(String::as_str)
    }
}

fn architecture() -> Architecture {
    let text = std::fs::read_to_string(Path::new(ROOT).join("docs/ARCHITECTURE.md"));
    Architecture::read(&text.expect("the document is there"))
}

fn folder(path: &str) -> &str {
    path.split('/').next().unwrap_or(path)
}

#[test]
fn rooms_use_only_what_the_table_allows() {
    let architecture = architecture();
    assert!(architecture.rooms.len() > 20, "the table was not read");
    let metadata = cargo_metadata::MetadataCommand::new()
        .manifest_path(format!("{ROOT}/Cargo.toml"))
        .no_deps()
        .exec()
        .expect("cargo metadata runs");
    let root = Path::new(ROOT).canonicalize().expect("our own folder");
    let mut wrong = Vec::new();
    let mut seen = BTreeSet::new();
    for package in &metadata.packages {
        let manifest = package.manifest_path.as_std_path();
        let lies = manifest.parent().expect("a manifest lies in a folder");
        let lies = lies.strip_prefix(&root).expect("a crate of ours");
        let lies = lies.to_string_lossy();
        let room = lies.strip_prefix("crates/").unwrap_or(&lies);
        let Some(may) = architecture.rooms.get(room) else {
            wrong.push(format!("{room} has no row in the table"));
            continue;
        };
        seen.insert(room.to_owned());
        let mut uses = BTreeSet::new();
        for dependency in &package.dependencies {
            // Tests may use what they like; the table is about what ships.
            let ships = dependency.kind == cargo_metadata::DependencyKind::Normal;
            if let Some(used) = dependency.name.strip_prefix("sunder-")
                && ships
            {
                uses.insert(used.to_owned());
            }
        }
        wrong.extend(uses.difference(may).map(|u| format!("{room} uses {u}")));
        wrong.extend(
            may.difference(&uses)
                .map(|u| format!("{room} does not use {u}")),
        );
    }
    let unseen = architecture
        .rooms
        .keys()
        .filter(|room| !seen.contains(*room));
    wrong.extend(unseen.map(|room| format!("there is no crate {room}")));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn rooms_use_only_the_folders_that_theirs_may() {
    let architecture = architecture();
    let mut wrong = BTreeSet::new();
    for (room, uses) in &architecture.rooms {
        let Some(may) = architecture.folders.get(folder(room)) else {
            continue;
        };
        for used in uses {
            let Some(path) = architecture.path_of(used) else {
                wrong.insert(format!("{room}: no room {used}"));
                continue;
            };
            if !may.contains(folder(path)) {
                wrong.insert(format!("{room} > {path}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:?}");
}

/// The reader of tables finds what it is to find.
#[test]
fn tables_are_read() {
    let text = "text\n\n| folder | is | may use |\n|---|---|---|\n| `a` | x | `a`, `b` |\n\n\
                | room | may use | is |\n|---|---|---|\n| `a/one` | nothing | x |\n\
                | `b/two` | `one` | y |\nend\n";
    let read = Architecture::read(text);
    assert_eq!(read.folders["a"], ["a".to_owned(), "b".to_owned()].into());
    assert!(read.rooms["a/one"].is_empty());
    assert_eq!(read.rooms["b/two"], ["one".to_owned()].into());
    assert_eq!(read.path_of("one"), Some("a/one"));
}
