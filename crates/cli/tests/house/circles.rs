//! No circle of imports among the files of a crate: of two files, at most one needs the other,
//! also by way of others. So each file can be read after those that it imports from.
//!
//! Read as text: `use` declarations and paths that begin with `crate`, `super`, or a module that
//! the file declares. What a file only exports again (`pub use`) it does not need, nor what it
//! imports from the crate's root, which exports what is in other files.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// A path of modules below a crate's root; that of the root is empty.
type Module = Vec<String>;

/// What the program text consists of, as far as paths are concerned.
#[derive(Clone, Debug, PartialEq)]
enum Token {
    Word(String),
    Sign(char),
    /// `::`
    Below,
}

/// The files of a crate, by module.
fn modules(sources: &Path) -> BTreeMap<Module, String> {
    let mut found = BTreeMap::new();
    let mut folders = vec![sources.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder").flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "rs") {
                let below = path
                    .strip_prefix(sources)
                    .expect("below")
                    .with_extension("");
                let mut module: Module = below
                    .iter()
                    .map(|part| part.to_string_lossy().into_owned())
                    .collect();
                if module == ["lib"] || module == ["main"] {
                    module.clear();
                }
                found.insert(module, fs::read_to_string(&path).expect("a source"));
            }
        }
    }
    found
}

/// The text up to the module of its tests, if that is in it and not a file of its own.
fn without_tests(text: &str) -> &str {
    const HEAD: &str = "#[cfg(test)]\nmod ";
    let inline = text.match_indices(HEAD).find(|(at, _)| {
        let after = &text[at + HEAD.len()..];
        after
            .find(['{', ';'])
            .is_some_and(|end| after[end..].starts_with('{'))
    });
    inline.map_or(text, |(at, _)| &text[..at])
}

/// The text's tokens, without tests, comments and literals.
fn tokens(text: &str) -> Vec<Token> {
    let text = without_tests(text);
    let mut found = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let taken = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if first == '"' {
            1 + string_end(&rest[1..])
        } else if rest.starts_with("r#\"") {
            rest.find("\"#").map_or(rest.len(), |end| end + 2)
        } else if rest.starts_with("'\"'") || rest.starts_with("'\\\"'") {
            rest[1..].find('\'').map_or(1, |end| end + 2)
        } else if first.is_alphanumeric() || first == '_' {
            let word = |c: char| !(c.is_alphanumeric() || c == '_');
            let end = rest.find(word).unwrap_or(rest.len());
            found.push(Token::Word(rest[..end].to_owned()));
            end
        } else if rest.starts_with("::") {
            found.push(Token::Below);
            2
        } else {
            if !first.is_whitespace() {
                found.push(Token::Sign(first));
            }
            first.len_utf8()
        };
        rest = &rest[taken..];
    }
    found
}

/// Where a string ends whose text begins here: behind its quotation mark.
fn string_end(text: &str) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// The paths in the tokens, as they are written; those of `pub use` are left out.
fn paths(tokens: &[Token]) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        match &tokens[at] {
            Token::Word(word) if word == "use" => {
                let exported = at > 0 && is_public(&tokens[..at]);
                let mut tree = Vec::new();
                at = use_tree(tokens, at + 1, &[], &mut tree);
                if !exported {
                    found.append(&mut tree);
                }
            }
            Token::Word(_) => {
                let continues = at > 0 && matches!(tokens[at - 1], Token::Below | Token::Sign('.'));
                let (path, end) = simple_path(tokens, at);
                if !continues && path.len() > 1 {
                    found.push(path);
                }
                at = end;
            }
            _ => at += 1,
        }
    }
    found
}

/// Whether the tokens before `use` end with `pub` or `pub(…)`.
fn is_public(before: &[Token]) -> bool {
    let is = |token: &Token, word: &str| matches!(token, Token::Word(w) if w == word);
    match before {
        [.., last] if is(last, "pub") => true,
        [.., Token::Sign(')')] => {
            let open = before.iter().rposition(|t| *t == Token::Sign('('));
            open.is_some_and(|open| open > 0 && is(&before[open - 1], "pub"))
        }
        _ => false,
    }
}

/// A path of words from `at` on, and the position behind it.
fn simple_path(tokens: &[Token], mut at: usize) -> (Vec<String>, usize) {
    let mut path = Vec::new();
    while let Some(Token::Word(word)) = tokens.get(at) {
        path.push(word.clone());
        at += 1;
        let more = matches!(tokens.get(at + 1), Some(Token::Word(_)));
        if tokens.get(at) != Some(&Token::Below) || !more {
            break;
        }
        at += 1;
    }
    (path, at)
}

/// Adds all paths of a tree of imports that begins at `at` below `prefix`; the position behind it.
fn use_tree(tokens: &[Token], at: usize, prefix: &[String], found: &mut Vec<Vec<String>>) -> usize {
    let (path, mut at) = simple_path(tokens, at);
    let mut whole = prefix.to_vec();
    whole.extend(path);
    if tokens.get(at) == Some(&Token::Below) {
        at += 1;
    }
    if tokens.get(at) != Some(&Token::Sign('{')) {
        found.push(whole);
        // `as`, and `*`.
        while let Some(Token::Word(_) | Token::Sign('*')) = tokens.get(at) {
            at += 1;
        }
        return at;
    }
    at += 1;
    while at < tokens.len() && tokens[at] != Token::Sign('}') {
        at = use_tree(tokens, at, &whole, found);
        if tokens.get(at) == Some(&Token::Sign(',')) {
            at += 1;
        }
    }
    at + 1
}

/// The module of this crate that a path in `from` leads to, if it leads to another than the root.
fn target(path: &[String], from: &Module, all: &BTreeMap<Module, String>) -> Option<Module> {
    let mut base = from.clone();
    let mut rest = path;
    match rest.first().map(String::as_str) {
        Some("crate") => {
            base.clear();
            rest = &rest[1..];
        }
        Some("super") => {
            while rest.first().is_some_and(|first| first == "super") {
                base.pop()?;
                rest = &rest[1..];
            }
        }
        Some("self") => rest = &rest[1..],
        first => {
            let mut child = base.clone();
            child.push(first?.to_owned());
            all.get(&child)?;
        }
    }
    for part in rest {
        base.push(part.clone());
        if !all.contains_key(&base) {
            base.pop();
            break;
        }
    }
    (!base.is_empty() && base != *from).then_some(base)
}

/// Circles of imports among these files: each as the set of its modules.
fn circles(all: &BTreeMap<Module, String>) -> BTreeSet<BTreeSet<String>> {
    let needs: BTreeMap<&Module, BTreeSet<Module>> = all
        .iter()
        .filter(|(module, _)| !module.is_empty())
        .map(|(module, text)| {
            let paths = paths(&tokens(text));
            let targets = paths.iter().filter_map(|path| target(path, module, all));
            (module, targets.collect())
        })
        .collect();
    let reaches = |from: &Module| {
        let mut seen = BTreeSet::new();
        let mut next = vec![from];
        while let Some(module) = next.pop() {
            for needed in needs.get(module).into_iter().flatten() {
                if seen.insert(needed) {
                    next.push(needed);
                }
            }
        }
        seen
    };
    let reached: BTreeMap<&Module, BTreeSet<&Module>> = needs
        .keys()
        .map(|module| (*module, reaches(module)))
        .collect();
    let together = |module: &Module| -> BTreeSet<String> {
        let mutual = reached[module]
            .iter()
            .filter(|other| reached[**other].contains(module));
        mutual.map(|other| other.join("::")).collect()
    };
    let circles = needs.keys().map(|module| together(module));
    circles.filter(|circle| !circle.is_empty()).collect()
}

/// The folders of sources of all crates.
fn sources() -> Vec<PathBuf> {
    let metadata = cargo_metadata::MetadataCommand::new()
        .no_deps()
        .exec()
        .expect("cargo describes the workspace");
    let folders = metadata.packages.iter().map(|package| {
        let manifest = package.manifest_path.as_std_path();
        manifest.with_file_name("src")
    });
    folders.filter(|folder| folder.exists()).collect()
}

#[test]
fn no_files_of_a_crate_import_each_other_in_a_circle() {
    let folders = sources();
    assert!(folders.len() > 30, "{folders:?}");
    let mut found = Vec::new();
    for folder in folders {
        for circle in circles(&modules(&folder)) {
            found.push(format!("{}: {circle:?}", folder.display()));
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// The modules of a crate, from `(module, text)`.
fn crate_of(files: &[(&str, &str)]) -> BTreeMap<Module, String> {
    let module = |name: &str| name.split("::").map(str::to_owned).collect();
    let files = files.iter();
    files
        .map(|&(name, text)| (module(name), text.to_owned()))
        .collect()
}

#[test]
fn circles_of_all_forms_of_imports_are_found() {
    for (first, second) in [
        ("use crate::b::B;", "use super::a::A;"),
        (
            "use crate::{b::{self, B}, c::C};",
            "fn f() { crate::a::g() }",
        ),
        (
            "pub(crate) fn f(b: crate::b::B) {}",
            "use std::io;\nuse crate::a::*;",
        ),
    ] {
        let files = crate_of(&[("a", first), ("b", second), ("c", "")]);
        assert_eq!(circles(&files).len(), 1, "{first} {second}");
    }
    let files = crate_of(&[
        ("a", "mod part; fn f() { part::g() }"),
        ("a::part", "use super::f;"),
    ]);
    assert_eq!(circles(&files).len(), 1);
    let three = crate_of(&[
        ("a", "use crate::b::B;"),
        ("b", "use crate::c::C;"),
        ("c", "use crate::a::A;"),
    ]);
    let names = ["a", "b", "c"].map(str::to_owned);
    assert_eq!(circles(&three), BTreeSet::from([BTreeSet::from(names)]));
}

#[test]
fn comments_tests_and_exports_make_no_circle() {
    let files = crate_of(&[
        ("a", "use crate::b::B;"),
        (
            "b",
            "// crate::a::f\nconst S: &str = \"crate::a\";\n#[cfg(test)]\nmod tests { use crate::a::f; }",
        ),
    ]);
    assert!(circles(&files).is_empty());
    let files = crate_of(&[
        (
            "a",
            "mod part; pub use part::B; pub(crate) use part::{C, D}; fn f() {}",
        ),
        ("a::part", "use super::f;"),
    ]);
    assert!(circles(&files).is_empty());
}
