//! What documents name must exist: repository paths, commands and flags. And no
//! file may tell where it was written: paths of the developing machine.
//!
//! The finders are plain functions over text, tested below on a made-up
//! document with every kind of mistake.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The documents that people read, relative to the root. Those of `eval/runs` are
/// records: what they name was there when they were written.
fn documents() -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = [
        "README.md",
        "CHANGELOG.md",
        "CONTRIBUTING.md",
        "SECURITY.md",
        "workloads/README.md",
    ]
    .map(PathBuf::from)
    .to_vec();
    let mut folders = vec![PathBuf::from("docs")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(root().join(&folder)).expect("our folders can be read") {
            let entry = entry.expect("our folders can be read");
            let path = folder.join(entry.file_name());
            if entry.path().is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "md")
                // Made of `--help` itself, whose examples have programs of their own.
                && !path.ends_with("book/commands.md")
            {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// The names of all files of ours: a document may call a file by its bare name.
fn file_names() -> BTreeSet<String> {
    let ours = [".ci", "crates", "docs", "eval", "setup", "workloads"];
    let mut folders: Vec<PathBuf> = ours.iter().map(|folder| root().join(folder)).collect();
    let mut names = BTreeSet::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("our folders can be read") {
            let entry = entry.expect("our folders can be read");
            if entry.path().is_dir() {
                folders.push(entry.path());
            } else {
                names.extend(entry.file_name().into_string());
            }
        }
    }
    names
}

fn read(document: &Path) -> String {
    std::fs::read_to_string(root().join(document))
        .unwrap_or_else(|e| panic!("{}: {e}", document.display()))
}

/// A document taken apart, each piece with its line number.
#[derive(Default)]
struct Pieces {
    /// Texts between backticks.
    spans: Vec<(usize, String)>,
    /// Lines of fenced and of indented code.
    code: Vec<(usize, String)>,
    /// Targets of links.
    links: Vec<(usize, String)>,
}

fn take_apart(text: &str) -> Pieces {
    let mut pieces = Pieces::default();
    let mut paragraph = String::new();
    let mut fenced = false;
    for (line, number) in text.lines().zip(1..) {
        let fence = line.trim_start().starts_with("```");
        let indented = paragraph.is_empty() && line.starts_with("    ");
        if fence || fenced || indented || line.trim().is_empty() {
            pieces.add_paragraph(&paragraph, number - 1);
            paragraph.clear();
            fenced ^= fence;
            if !fence {
                pieces.code.push((number, line.trim().to_owned()));
            }
        } else {
            paragraph.push_str(line);
            paragraph.push('\n');
        }
    }
    pieces.add_paragraph(&paragraph, text.lines().count());
    pieces
}

impl Pieces {
    /// Adds the spans and links of `paragraph`, whose last line has number `last`. A span or a
    /// link may go on in the next line.
    fn add_paragraph(&mut self, paragraph: &str, last: usize) {
        let first = last - paragraph.lines().count();
        let place = |part: &str| {
            let before = &paragraph[..part.as_ptr().addr() - paragraph.as_ptr().addr()];
            first + before.matches('\n').count() + 1
        };
        let whole = |part: &str| part.split_whitespace().collect::<Vec<_>>().join(" ");
        let spans = paragraph.split('`').skip(1).step_by(2);
        self.spans.extend(spans.map(|s| (place(s), whole(s))));
        for rest in paragraph.split("](").skip(1) {
            if let Some((target, _)) = rest.split_once(')') {
                self.links.push((place(target), whole(target)));
            }
        }
    }
}

/// Endings of our own files: a bare name in backticks with one of these must exist. The names of
/// users' files (`report.html`, `result.json`) end otherwise.
const OURS: [&str; 6] = [".rs", ".toml", ".md", ".c", ".cpp", ".h"];

/// The path in a span, if it is one: it has a slash, or is a source file's name. A path that
/// begins with `/` or `./` is on the reader's machine.
fn path_in(span: &str) -> Option<&str> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./".contains(c);
    let outside = ["/", "./", "../", "-", "~"];
    let is_path = !span.is_empty()
        && span.chars().all(plain)
        && !outside.iter().any(|start| span.starts_with(start))
        && (span.contains('/')
            || OURS
                .iter()
                .any(|end| span.ends_with(end) && span.len() > end.len()));
    is_path.then_some(span)
}

/// Paths that `text` names and that do not exist.
fn missing_paths(text: &str, exists: &dyn Fn(&str) -> bool) -> Vec<String> {
    let pieces = take_apart(text);
    let mut wrong = Vec::new();
    for (line, span) in &pieces.spans {
        if let Some(path) = path_in(span)
            && !exists(path)
        {
            wrong.push(format!("{line}: no file {path}"));
        }
    }
    for (line, target) in &pieces.links {
        let file = target.split('#').next().unwrap_or_default();
        if !file.is_empty() && !file.contains("://") && !exists(file) {
            wrong.push(format!("{line}: the link to {file} leads nowhere"));
        }
    }
    wrong
}

/// The interface of `sunder`: its commands, each with its flags.
type Interface = BTreeMap<String, BTreeSet<String>>;

/// The arguments of each `sunder …` in a line of a shell, also as `cargo run --
/// …`.
fn invocations(line: &str) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    for part in line.split(&['|', ';', '&', '>', '#'][..]) {
        let words: Vec<&str> = part
            .split_whitespace()
            .filter(|word| *word != "$" && *word != "sudo")
            .collect();
        let arguments = match words.as_slice() {
            ["sunder", arguments @ ..] => arguments,
            ["cargo", "run", rest @ ..] => match rest.iter().position(|w| *w == "--") {
                Some(at) if !rest[..at].contains(&"-p") => &rest[at + 1..],
                _ => continue,
            },
            _ => continue,
        };
        found.push(arguments.iter().map(|w| (*w).to_owned()).collect());
    }
    found
}

/// The name of a flag in a word: `--format` of `--format=json`, `-o` of `-o`.
fn flag_in(word: &str) -> Option<&str> {
    let name = word.split(['=', '[', ',']).next()?;
    (name.len() > 1 && name.starts_with('-') && name != "--").then_some(name)
}

fn wrong_arguments(arguments: &[String], interface: &Interface) -> Option<String> {
    let own = arguments.iter().take_while(|word| *word != "--");
    let mut command: Option<&String> = None;
    for word in own {
        match (flag_in(word), command) {
            (None, None) => {
                if word.chars().all(|c| c.is_ascii_lowercase()) && !interface.contains_key(word) {
                    return Some(format!("no command `sunder {word}`"));
                }
                command = interface.get_key_value(word).map(|(name, _)| name);
                // What follows these is for a compiler or for cargo.
                command.filter(|c| !["cc", "c++", "cargo"].contains(&c.as_str()))?;
            }
            (Some(flag), _) => {
                let flags = &interface[command.map_or("", String::as_str)];
                if !flags.contains(flag) {
                    let command = command.map_or("", String::as_str);
                    return Some(format!("`sunder {command}` has no {flag}"));
                }
            }
            (None, Some(_)) => {}
        }
    }
    None
}

/// Commands and flags that `text` names and that `sunder` does not have. A span
/// that begins with two dashes is a flag of one of our commands; those of other
/// programs are named together with the program.
fn missing_commands(text: &str, interface: &Interface) -> Vec<String> {
    let pieces = take_apart(text);
    let mut wrong = Vec::new();
    for (line, code) in pieces.code.iter().chain(&pieces.spans) {
        for arguments in invocations(code) {
            let mistake = wrong_arguments(&arguments, interface);
            wrong.extend(mistake.map(|m| format!("{line}: {m}")));
        }
    }
    for (line, span) in &pieces.spans {
        let flag = span.split_whitespace().next().and_then(flag_in);
        if let Some(flag) = flag.filter(|flag| flag.starts_with("--"))
            && !interface.values().any(|flags| flags.contains(flag))
        {
            wrong.push(format!("{line}: no command has {flag}"));
        }
    }
    wrong
}

/// The interface, read from the program's own help.
fn interface() -> Interface {
    let help = |arguments: &[&str]| {
        let mut sunder = Command::new(env!("CARGO_BIN_EXE_sunder"));
        let output = sunder.args(arguments).output().expect("sunder runs");
        assert!(output.status.success(), "sunder {arguments:?}");
        String::from_utf8(output.stdout).expect("help is text")
    };
    let top = help(&["--help"]);
    let mut interface = Interface::from([(String::new(), flags_of(&top))]);
    for command in commands_of(&top) {
        let own = help(&[&command, "--help"]);
        let mut flags = flags_of(&own);
        // Those of `sunder trace export` count as those of `sunder trace`.
        for below in commands_of(&own) {
            flags.extend(flags_of(&help(&[&command, &below, "--help"])));
        }
        interface.insert(command, flags);
    }
    interface
}

fn commands_of(help: &str) -> Vec<String> {
    // Those of `sunder` itself are in groups, the first of which has this name.
    let heading = |line: &&str| *line != "Commands:" && *line != "First steps:";
    help.lines()
        .skip_while(heading)
        .take_while(|line| *line != "Options:")
        .filter(|line| line.starts_with("  ") && !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next())
        // `help` explains the others and has no help of its own.
        .filter(|command| *command != "help" && !command.starts_with('['))
        .map(str::to_owned)
        .collect()
}

fn flags_of(help: &str) -> BTreeSet<String> {
    help.lines()
        .skip_while(|line| *line != "Options:")
        .take_while(|line| *line != "Examples:")
        .filter(|line| line.trim_start().starts_with('-'))
        .flat_map(|line| {
            let flags = line.trim_start().split("  ").next().unwrap_or_default();
            flags.split([' ', ',']).filter_map(flag_in)
        })
        .map(str::to_owned)
        .collect()
}

/// Lines of `text` with a path of the developing machine. A match inside a longer path is none.
fn machine_paths(text: &str) -> Vec<String> {
    // Built from parts, so that the test does not find itself.
    let telling = [
        concat!("/wo", "rk/"),
        concat!("/ro", "ot/"),
        concat!("/tm", "p/target"),
    ];
    let begins = |line: &str, at: usize| {
        let before = line[..at].chars().next_back();
        !before.is_some_and(|c| c.is_alphanumeric() || "_.}>/-".contains(c))
    };
    let accused = |line: &&(&str, usize)| {
        telling
            .iter()
            .any(|path| line.0.match_indices(path).any(|(at, _)| begins(line.0, at)))
    };
    let lines: Vec<(&str, usize)> = text.lines().zip(1..).collect();
    let accused = lines.iter().filter(accused);
    accused
        .map(|(line, number)| format!("{number}: {}", line.trim()))
        .collect()
}

/// Fails with all mistakes at once, each with its document.
fn none_wrong(mistakes: Vec<(PathBuf, Vec<String>)>) {
    let all: Vec<String> = mistakes
        .into_iter()
        .flat_map(|(file, wrong)| {
            wrong
                .into_iter()
                .map(move |w| format!("{}:{w}", file.display()))
        })
        .collect();
    assert!(all.is_empty(), "\n{}", all.join("\n"));
}

#[test]
fn paths_that_documents_name_exist() {
    let names = file_names();
    let mistakes = documents()
        .into_iter()
        .map(|document| {
            let folder = root().join(document.parent().unwrap_or(Path::new("")));
            // A room is called by its path below `crates`, `outside/live`, and an end-to-end test by
            // its path below the folder of these tests: `repair/groups.rs`.
            let rooms = root().join("crates");
            let tests = root().join("crates/cli/tests");
            let exists = |path: &str| {
                let from = [&root(), &folder, &rooms, &tests];
                from.iter().any(|from| from.join(path).exists()) || names.contains(path)
            };
            let wrong = missing_paths(&read(&document), &exists);
            (document, wrong)
        })
        .collect();
    none_wrong(mistakes);
}

#[test]
fn commands_and_flags_that_documents_name_exist() {
    let interface = interface();
    assert!(interface["detect"].contains("--follow-children"));
    let mistakes = documents()
        .into_iter()
        .map(|document| {
            let wrong = missing_commands(&read(&document), &interface);
            (document, wrong)
        })
        .collect();
    none_wrong(mistakes);
}

#[test]
fn no_tracked_file_tells_of_the_developing_machine() {
    let listed = Command::new("git")
        .args(["ls-files", "-z"])
        .current_dir(root())
        .output();
    let listed = match listed {
        Ok(output) if output.status.success() => output.stdout,
        _ => {
            println!("SKIP: this is no git checkout, so nobody says which files are tracked");
            return;
        }
    };
    let names = String::from_utf8(listed).expect("names of ours are text");
    let mut read = 0;
    let mut mistakes = Vec::new();
    for name in names.split_terminator('\0') {
        // Skips files that are not text and files that were removed but not committed.
        if let Ok(text) = std::fs::read_to_string(root().join(name)) {
            read += 1;
            mistakes.push((PathBuf::from(name), machine_paths(&text)));
        }
    }
    assert!(read > 100, "only {read} files were looked at");
    none_wrong(mistakes);
}

/// A document with one mistake of each kind among what is right.
const MADE_UP: &str = "\
# A document

Right: `crates/cli`, `main.rs`, [this](docs/here.md#part), [far](https://example.org/x),
`/proc/PID/maps`, `./server`, `report.html`, `sunder detect --all -o x.json -- ls --no-such`,
`--all`, `perf record --user-regs=ax`, `and so
on`.

Wrong: `crates/nowhere`, `gone.rs`, [that](docs/gone.md),
`sunder detct -- ls`, `sunder detect
--al -- ls`, `--every`.

    cargo run --release -- detect --all
    cargo run --release -- demmo
    cargo run -p other -- anything
    sudo sunder report -x | less

```
$ sunder report --wrong=1; ls --anything
```
";

#[test]
fn wrong_paths_are_found() {
    let there = ["crates/cli", "main.rs", "docs/here.md"];
    let wrong = missing_paths(MADE_UP, &|path| there.contains(&path));
    assert_eq!(
        wrong,
        [
            "8: no file crates/nowhere",
            "8: no file gone.rs",
            "8: the link to docs/gone.md leads nowhere",
        ]
    );
}

#[test]
fn wrong_commands_and_flags_are_found() {
    let flags = |names: &[&str]| names.iter().map(|n| (*n).to_owned()).collect();
    let interface = Interface::from([
        (String::new(), flags(&["--help"])),
        ("detect".into(), flags(&["--all", "-o"])),
        ("report".into(), flags(&["--all"])),
    ]);
    let mut wrong = missing_commands(MADE_UP, &interface);
    wrong.sort();
    assert_eq!(
        wrong,
        [
            "10: no command has --every",
            "13: no command `sunder demmo`",
            "15: `sunder report` has no -x",
            "18: `sunder report` has no --wrong",
            "9: `sunder detect` has no --al",
            "9: no command `sunder detct`",
        ]
    );
}

#[test]
fn help_is_understood() {
    let help = "What it is.\n\nUsage: sunder [OPTIONS] <COMMAND>\n\nCommands:\n  detect  Run it\n  \
                help    Explain\n\nOptions:\n  -o, --output <FILE>  Where; not --nowhere\n      \
                --all\n          Everything\n\nExamples:\n  sunder detect --later\n";
    assert_eq!(commands_of(help), ["detect"]);
    let flags: Vec<String> = flags_of(help).into_iter().collect();
    assert_eq!(flags, ["--all", "--output", "-o"]);
}

#[test]
fn paths_of_the_developing_machine_are_found() {
    let telling = concat!("/wo", "rk/x");
    let text = format!("see {telling}\nhttp://example.org{telling} {{proc}}{telling}\n\"{telling}");
    let lines: Vec<String> = machine_paths(&text)
        .iter()
        .map(|line| line.split(':').next().unwrap_or_default().to_owned())
        .collect();
    assert_eq!(lines, ["1", "3"]);
}
