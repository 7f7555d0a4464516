//! How documents are written, as far as a test can see it: short table cells, design notes
//! that open for a newcomer, a changelog in the usual form, and a head of every crate that
//! says what the crate is for, who uses it and what it must not do.
//!
//! It reads files and nothing else. The checks are plain functions over text, tested below on
//! made-up documents. What documents *name* is checked by `documents.rs`.

use std::path::{Path, PathBuf};

/// A longer cell can't be read in a terminal: it is a section or a list.
const MOST_WORDS_OF_A_CELL: usize = 40;
/// A change is one sentence that its user understands.
const MOST_WORDS_OF_A_CHANGE: usize = 40;
/// An opening paragraph that explains a topic takes a few sentences.
const LEAST_WORDS_OF_AN_OPENING: usize = 30;
/// Characters of which a picture has at least one.
const OF_PICTURES: [char; 9] = ['│', '─', '►', '▼', '▲', '◄', '→', '└', '┌'];
/// The sections of Keep a Changelog.
const SECTIONS: [&str; 6] = [
    "Added",
    "Changed",
    "Deprecated",
    "Removed",
    "Fixed",
    "Security",
];
/// How a crate's head says who uses it: a sentence with one of these, and later `by`.
const USES: [&str; 5] = ["used", "called", "loaded", "preloaded", "run"];
/// How a crate's head says what it must not do.
const LIMITS: [&str; 5] = [
    "must not",
    "must never",
    "nothing here",
    "no code here",
    "reads no",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// All files below `folder` that `wanted` accepts, except below build folders.
fn files_below(folder: &Path, wanted: &dyn Fn(&Path) -> bool) -> Vec<PathBuf> {
    let mut folders = vec![folder.to_path_buf()];
    let mut found = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("our folders can be read") {
            let path = entry.expect("our folders can be read").path();
            if path.is_dir() && !path.ends_with("target") {
                folders.push(path);
            } else if path.is_file() && wanted(&path) {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// The documents that people read. Those of `eval/runs` are records of their time.
fn documents() -> Vec<PathBuf> {
    let top = ["README.md", "CHANGELOG.md", "CONTRIBUTING.md"].map(|name| root().join(name));
    let is_document = |path: &Path| path.extension().is_some_and(|e| e == "md");
    let below = ["docs", "workloads", "fuzz"]
        .into_iter()
        .flat_map(|folder| files_below(&root().join(folder), &is_document));
    top.into_iter().chain(below).collect()
}

/// The lines of `text` with their numbers, without fenced blocks.
fn prose(text: &str) -> Vec<(usize, &str)> {
    let mut fenced = false;
    let mut lines = Vec::new();
    for (line, number) in text.lines().zip(1..) {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        } else if !fenced {
            lines.push((number, line));
        }
    }
    lines
}

fn words(text: &str) -> usize {
    text.split_whitespace().count()
}

fn long_cells(text: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    for (number, line) in prose(text) {
        if !line.trim_start().starts_with('|') {
            continue;
        }
        let longest = line.split('|').map(words).max().unwrap_or_default();
        if longest > MOST_WORDS_OF_A_CELL {
            wrong.push(format!("{number}: a table cell of {longest} words"));
        }
    }
    wrong
}

/// What a design note lacks: a title, a paragraph for newcomers right after it, and a picture
/// before the first section.
fn wrong_opening(text: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut lines = text.lines();
    if !lines.next().is_some_and(|line| line.starts_with("# ")) {
        wrong.push("1: no title".to_owned());
    }
    let opening: Vec<&str> = lines
        .clone()
        .skip_while(|line| line.trim().is_empty())
        .take_while(|line| !line.trim().is_empty())
        .collect();
    let begins_otherwise = |line: &&str| {
        let others = ["- ", "* ", "|", "#", "```", ">", "1. ", "    "];
        others.iter().any(|other| line.starts_with(other))
    };
    if opening.iter().any(begins_otherwise) || words(&opening.join(" ")) < LEAST_WORDS_OF_AN_OPENING
    {
        wrong.push("3: no opening paragraph for a newcomer".to_owned());
    }
    let before_sections: Vec<&str> = lines.take_while(|line| !line.starts_with("## ")).collect();
    let fences = before_sections.iter().filter(|l| l.starts_with("```"));
    let drawn = before_sections.join("\n").contains(OF_PICTURES);
    if fences.count() < 2 || !drawn {
        wrong.push("no picture before the first section".to_owned());
    }
    wrong
}

/// What is not as in Keep a Changelog.
fn wrong_changes(text: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut section = None;
    let mut change: Option<(usize, usize)> = None;
    let mut versions = 0;
    let too_long = |change: Option<(usize, usize)>| {
        change
            .filter(|(_, words)| *words > MOST_WORDS_OF_A_CHANGE)
            .map(|(number, words)| format!("{number}: a change of {words} words"))
    };
    if text.lines().next() != Some("# Changelog") {
        wrong.push("1: no title `# Changelog`".to_owned());
    }
    for (number, line) in prose(text) {
        let continues = line.starts_with("  ");
        if !continues {
            wrong.extend(too_long(change.take()));
        }
        if let Some(version) = line.strip_prefix("## ") {
            versions += 1;
            section = None;
            if !is_version(version) {
                wrong.push(format!("{number}: no version: {version}"));
            }
        } else if let Some(name) = line.strip_prefix("### ") {
            section = Some(name);
            if !SECTIONS.contains(&name) {
                wrong.push(format!("{number}: no section of Keep a Changelog: {name}"));
            }
        } else if let Some(first) = line.strip_prefix("- ") {
            change = Some((number, words(first)));
            if section.is_none() {
                wrong.push(format!("{number}: a change in no section"));
            }
        } else if let (true, Some((_, words_so_far))) = (continues, &mut change) {
            *words_so_far += words(line);
        }
    }
    wrong.extend(too_long(change));
    if versions == 0 {
        wrong.push("no version".to_owned());
    }
    wrong
}

/// `[Unreleased]`, or `[1.2.3] - 2026-01-31`.
fn is_version(heading: &str) -> bool {
    if heading == "[Unreleased]" {
        return true;
    }
    let numbers = |text: &str, between: char| {
        let parts: Vec<&str> = text.split(between).collect();
        parts.len() == 3 && parts.iter().all(|part| part.parse::<u32>().is_ok())
    };
    heading
        .strip_prefix('[')
        .and_then(|rest| rest.split_once("] - "))
        .is_some_and(|(version, date)| numbers(version, '.') && numbers(date, '-'))
}

/// What the `//!` head of a crate does not say.
fn wrong_head(source: &str) -> Vec<String> {
    let head: Vec<&str> = source
        .lines()
        .map_while(|line| line.strip_prefix("//!"))
        .collect();
    // A sentence may go on in the next line.
    let head = head.join(" ").to_lowercase();
    let head = head.split_whitespace().collect::<Vec<_>>().join(" ");
    if head.is_empty() {
        return vec!["it has no head (`//!`)".to_owned()];
    }
    let mut wrong = Vec::new();
    if !head.split(['.', ':', ';']).any(says_who) {
        wrong.push(format!(
            "its head does not say who uses it (one of {USES:?}, then `by`)"
        ));
    }
    if !LIMITS.iter().any(|limit| head.contains(limit)) {
        wrong.push(format!(
            "its head does not say what it must not do (one of {LIMITS:?})"
        ));
    }
    wrong
}

/// Whether a sentence is like "called with a complete trace by the simulation".
fn says_who(sentence: &str) -> bool {
    let words: Vec<&str> = sentence.split_whitespace().collect();
    let used = words.iter().position(|word| USES.contains(word));
    used.is_some_and(|used| words[used..].contains(&"by"))
}

/// Fails with all mistakes at once, each with its file.
fn none_wrong(mistakes: impl Iterator<Item = (PathBuf, Vec<String>)>) {
    let all: Vec<String> = mistakes
        .flat_map(|(path, wrong)| {
            let name = path.strip_prefix(root()).unwrap_or(&path).to_path_buf();
            wrong
                .into_iter()
                .map(move |w| format!("{}:{w}", name.display()))
        })
        .collect();
    assert!(all.is_empty(), "\n{}", all.join("\n"));
}

#[test]
fn table_cells_are_short() {
    none_wrong(documents().into_iter().map(|path| {
        let wrong = long_cells(&read(&path));
        (path, wrong)
    }));
}

#[test]
fn design_notes_open_for_newcomers() {
    let notes = files_below(&root().join("docs/design"), &|path| {
        path.extension().is_some_and(|e| e == "md")
    });
    assert!(!notes.is_empty());
    none_wrong(notes.into_iter().map(|path| {
        let wrong = wrong_opening(&read(&path));
        (path, wrong)
    }));
}

#[test]
fn changes_are_kept_as_usual() {
    let path = root().join("CHANGELOG.md");
    let wrong = wrong_changes(&read(&path));
    none_wrong(std::iter::once((path, wrong)));
}

#[test]
fn crates_say_what_they_are_for() {
    let manifests = files_below(&root().join("crates"), &|path| path.ends_with("Cargo.toml"));
    assert!(
        manifests.len() > 10,
        "only {} crates were found",
        manifests.len()
    );
    let heads = manifests.iter().map(|manifest| {
        let sources = manifest.with_file_name("src");
        let roots = ["lib.rs", "main.rs"].map(|name| sources.join(name));
        let root = roots.into_iter().find(|path| path.exists());
        root.unwrap_or_else(|| panic!("{} has no source", manifest.display()))
    });
    none_wrong(heads.map(|path| {
        let wrong = wrong_head(&read(&path));
        (path, wrong)
    }));
}

#[test]
fn long_cells_are_found() {
    let long = "word ".repeat(MOST_WORDS_OF_A_CELL + 1);
    let text =
        format!("| a | b |\n|---|---|\n| short | {long} |\n\n```\n| {long} |\n```\n{long}\n");
    assert_eq!(long_cells(&text), ["3: a table cell of 41 words"]);
}

#[test]
fn openings_that_lack_something_are_found() {
    let sentence = "This says what the topic is. ".repeat(6);
    let picture = "```\na ──► b\n```\n";
    let good = format!("# Title\n\n{sentence}\n\n{picture}\n## Details\n");
    assert_eq!(wrong_opening(&good), [""; 0]);
    let late = format!("# Title\n\n{sentence}\n\n## Details\n\n{picture}");
    assert_eq!(
        wrong_opening(&late),
        ["no picture before the first section"]
    );
    let list = format!("# Title\n\n- {sentence}\n\n{picture}");
    assert_eq!(
        wrong_opening(&list),
        ["3: no opening paragraph for a newcomer"]
    );
    let nothing = wrong_opening("Text");
    assert_eq!(nothing.len(), 3, "{nothing:?}");
}

#[test]
fn changes_in_another_form_are_found() {
    let good = "# Changelog\n\n## [Unreleased]\n\n### Added\n\n- It works\n  at last.\n\n\
                ## [0.1.0] - 2026-01-31\n\n### Fixed\n\n- This.\n";
    assert_eq!(wrong_changes(good), [""; 0]);
    let long = "word ".repeat(MOST_WORDS_OF_A_CHANGE);
    let bad = format!("# News\n## 0.1\n- Early.\n### Improved\n- A {long}\n  b\n");
    assert_eq!(
        wrong_changes(&bad),
        [
            "1: no title `# Changelog`",
            "2: no version: 0.1",
            "3: a change in no section",
            "4: no section of Keep a Changelog: Improved",
            "5: a change of 42 words",
        ]
    );
}

#[test]
fn heads_that_lack_something_are_found() {
    let good = "//! Does this. Used\n//! by that. It must\n//! not print.\nmod a;\n";
    assert_eq!(wrong_head(good), [""; 0]);
    let early = "//! By name. It is used here. It must not print.\n";
    assert_eq!(wrong_head(early).len(), 1);
    assert_eq!(wrong_head("mod a;\n//! late").len(), 1);
    assert_eq!(wrong_head("//! Does this.\n").len(), 2);
}
