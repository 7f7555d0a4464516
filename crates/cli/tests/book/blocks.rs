//! Takes a page of the site apart: its command blocks, the files that it shows, and what a line of
//! HTML comment before a block says about it. Called by the test that runs them.

/// A fenced block with commands and what they print.
pub struct Block {
    /// The line of the page where it begins.
    pub line: usize,
    /// What is done with it.
    pub kind: Kind,
    /// It is run only where this command succeeds.
    pub only_if: Option<String>,
    /// Makes what a reader has at hand; it must succeed.
    pub before: Option<String>,
    pub steps: Vec<Step>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A file that the page shows: its name and text.
    File(String, String),
    /// Run, and its output compared.
    Exact,
    /// Run; what it prints differs from run to run.
    Varies,
    /// Not run here, for this reason.
    Elsewhere(String),
    /// Run only if this file is there; compared like `Varies`.
    Needs(String),
}

/// A command with the lines that it prints.
#[derive(Debug, PartialEq, Eq)]
pub struct Step {
    pub command: String,
    pub output: Vec<String>,
}

/// The blocks of a page that are commands, or files for them. Other blocks are only read.
pub fn blocks(page: &str) -> Vec<Block> {
    let mut found = Vec::new();
    let (mut note, mut only_if, mut before) = (None, None, None);
    let mut open: Option<(usize, String, Vec<&str>)> = None;
    for (line, number) in page.lines().zip(1..) {
        if let Some((start, info, mut text)) = open.take() {
            if line.trim_end() != "```" {
                text.push(line);
                open = Some((start, info, text));
            } else if let Some(kind) = kind(&info, note.take(), &text) {
                let steps = match &kind {
                    Kind::File(..) => Vec::new(),
                    _ => steps(&text),
                };
                found.push(Block {
                    line: start,
                    kind,
                    only_if: only_if.take(),
                    before: before.take(),
                    steps,
                });
            }
        } else if let Some(info) = line.strip_prefix("```") {
            open = Some((number, info.trim().to_owned(), Vec::new()));
        } else if let Some(comment) = line.strip_prefix("<!-- ") {
            let said = comment.strip_suffix(" -->").map(str::to_owned);
            match said.as_deref().and_then(|said| said.split_once(": ")) {
                Some(("if", command)) => only_if = Some(command.to_owned()),
                Some(("before", command)) => before = Some(command.to_owned()),
                _ => note = said,
            }
        } else if !line.trim().is_empty() {
            (note, only_if, before) = (None, None, None);
        }
    }
    found
}

fn kind(info: &str, note: Option<String>, text: &[&str]) -> Option<Kind> {
    let said = note.as_deref().and_then(|n| n.split_once(": "));
    match (info, said) {
        ("console", None) => Some(match note.as_deref() {
            Some("varies") => Kind::Varies,
            _ => Kind::Exact,
        }),
        ("console", Some(("elsewhere", why))) => Some(Kind::Elsewhere(why.to_owned())),
        ("console", Some(("needs", file))) => Some(Kind::Needs(file.to_owned())),
        (_, Some(("file", name))) => Some(Kind::File(name.to_owned(), text.join("\n") + "\n")),
        _ => None,
    }
}

/// Lines that begin with `$ ` are commands, which go on behind a backslash; the others are output.
fn steps(text: &[&str]) -> Vec<Step> {
    let mut all: Vec<Step> = Vec::new();
    let mut goes_on = false;
    for line in text {
        if let Some(command) = line.strip_prefix("$ ") {
            all.push(Step {
                command: command.to_owned(),
                output: Vec::new(),
            });
        } else if let Some(last) = all.last_mut() {
            match goes_on {
                true => last.command = format!("{}\n{line}", last.command),
                false => last.output.push((*line).to_owned()),
            }
        }
        goes_on = line.ends_with('\\') && (goes_on || line.starts_with("$ "));
    }
    all
}

/// Whether `seen` is what the page shows. In a line, `…` stands for any text; alone in a line, for any
/// lines.
pub fn shows(expected: &[String], seen: &[String]) -> bool {
    match expected.split_first() {
        None => seen.iter().all(|line| line.trim().is_empty()),
        Some((first, rest)) if first.trim() == "…" => {
            (0..=seen.len()).any(|skipped| shows(rest, &seen[skipped..]))
        }
        Some((first, rest)) => match seen.split_first() {
            Some((line, after)) => fits(first.trim_end(), line.trim_end()) && shows(rest, after),
            None => first.trim().is_empty() && shows(rest, seen),
        },
    }
}

fn fits(pattern: &str, line: &str) -> bool {
    match pattern.split_once('…') {
        None => pattern == line,
        Some((start, rest)) => line.strip_prefix(start).is_some_and(|line| {
            let ends = line.char_indices().map(|(at, _)| at).chain([line.len()]);
            ends.into_iter().any(|at| fits(rest, &line[at..]))
        }),
    }
}

#[test]
fn a_page_is_taken_apart() {
    let page = "\
text
<!-- file: a.c -->

```c
int a;
```
```console
$ echo one \\
    two
one two
$ true
```
<!-- if: true -->
<!-- before: mkdir made -->
<!-- elsewhere: no cluster -->
```console
$ kubectl get pods
```
```c
int only_read;
```
";
    let all = blocks(page);
    let kinds: Vec<_> = all.iter().map(|b| b.kind.clone()).collect();
    let file = Kind::File("a.c".into(), "int a;\n".into());
    let elsewhere = Kind::Elsewhere("no cluster".into());
    assert_eq!(kinds, [file, Kind::Exact, elsewhere]);
    assert_eq!(all[1].only_if, None);
    assert_eq!(all[2].only_if.as_deref(), Some("true"));
    assert_eq!(all[2].before.as_deref(), Some("mkdir made"));
    let commands: Vec<_> = all[1].steps.iter().map(|s| s.command.as_str()).collect();
    assert_eq!(commands, ["echo one \\\n    two", "true"]);
    assert_eq!(all[1].steps[0].output, ["one two"]);
}

#[test]
fn dots_stand_for_what_differs() {
    let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
    for (expected, seen, same) in [
        ("a\nb", "a\nb\n", true),
        ("a\nb", "a\nc", false),
        ("took … ms", "took 17 ms", true),
        ("took … ms", "took 17 s", false),
        ("a\n…\nz", "a\nb\nc\nz", true),
        ("a\n…\nz", "a\nb\nc", false),
        ("a\n…", "a\nb", true),
        ("a", "a\nb", false),
    ] {
        assert_eq!(
            shows(&lines(expected), &lines(seen)),
            same,
            "{expected} / {seen}"
        );
    }
}
