//! The user's sources below one folder: which file a path of debug information means, the texts,
//! and their syntax trees. Used by the files that know a language. It must not write anything.

use crate::error::{PatchError, Unsure, unsure};
use crate::macros::Macros;
use rustix::fs::{Mode, OFlags};
use std::cell::{Cell, OnceCell, RefCell};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Component, Path, PathBuf};
use std::rc::Rc;
use tree_sitter::{Parser, Tree};

/// How much of a folder is looked at. A folder with more is no single program's source, and a part of it
/// does not show all uses of a name.
#[derive(Clone, Copy, Debug)]
struct Limits {
    /// Source files.
    files: usize,
    /// Files and folders of all kinds: a walk must end also where few of them are sources.
    entries: usize,
    /// Bytes of texts that are parsed. All trees stay in memory, each with about 25 times the bytes of its text.
    parsed: usize,
    /// Bytes of texts that are read for definitions of macros, which stay in memory, too.
    preprocessed: usize,
}

const LIMITS: Limits = Limits {
    files: 50_000,
    entries: 1_000_000,
    parsed: 32 << 20,
    preprocessed: 512 << 20,
};

/// A larger file is generated, and no person patches it.
const LARGEST: u64 = 4 << 20;
/// Folders with copies or products of sources.
const NOT_SOURCES: [&str; 5] = [".git", ".hg", ".svn", "target", "node_modules"];

/// A source language, as a file's name tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Language {
    C,
    /// May be included by C and by C++.
    Header,
    Cpp,
    Rust,
}

impl Language {
    pub(crate) fn of(path: &Path) -> Option<Self> {
        // What Nim's compiler makes is made again by the next build.
        let made = |file: &str| file.ends_with(".nim.c") || file.ends_with(".nim.cpp");
        if path.to_str().is_some_and(made) {
            return None;
        }
        Some(match path.extension()?.to_str()? {
            "c" => Self::C,
            "h" => Self::Header,
            "cc" | "cpp" | "cxx" | "c++" | "C" | "hpp" | "hh" | "hxx" | "h++" | "ipp" | "tcc"
            | "inl" => Self::Cpp,
            "rs" => Self::Rust,
            _ => return None,
        })
    }
}

/// A text as the parser sees it, with its tree. Offsets are those of the text itself.
pub(crate) struct View {
    pub(crate) text: String,
    pub(crate) tree: Tree,
}

/// A source file.
pub(crate) struct Source {
    /// Below the root.
    pub(crate) path: PathBuf,
    pub(crate) language: Language,
    pub(crate) text: String,
    /// The text without macros that stand for attributes; then the same with one branch of each
    /// condition of the preprocessor, for texts that make sense in no other way.
    pub(crate) views: Vec<View>,
}

impl Source {
    /// The byte at which the line begins, which is counted from 1.
    pub(crate) fn line_start(&self, line: u32) -> Option<usize> {
        let wanted = usize::try_from(line).ok()?.checked_sub(1)?;
        if wanted == 0 {
            return Some(0);
        }
        let (at, _) = self.text.match_indices('\n').nth(wanted - 1)?;
        (at + 1 < self.text.len()).then_some(at + 1)
    }

    /// The line, counted from 1, without its end.
    pub(crate) fn line(&self, line: u32) -> Option<&str> {
        let start = self.line_start(line)?;
        self.text[start..].lines().next()
    }

    /// The number of the line, from 1, that has the byte.
    pub(crate) fn line_of(&self, at: usize) -> usize {
        self.text[..at].matches('\n').count() + 1
    }

    /// `file:line` of the byte.
    pub(crate) fn place(&self, at: usize) -> String {
        format!("{}:{}", self.path.display(), self.line_of(at))
    }
}

/// The sources below a folder.
pub(crate) struct Sources {
    root: PathBuf,
    files: OnceCell<Vec<PathBuf>>,
    read: RefCell<BTreeMap<PathBuf, Rc<Source>>>,
    macros: OnceCell<Macros>,
    limits: Limits,
    /// Bytes of all texts that have been parsed.
    parsed: Cell<usize>,
    /// Why not all was seen that somebody asked for.
    missed: OnceCell<Unsure>,
}

impl Sources {
    /// # Errors
    /// If there is no such folder, or it is the one with all files of the machine.
    pub(crate) fn below(root: &Path) -> Result<Self, PatchError> {
        let root = root.canonicalize().map_err(|source| PatchError::File {
            path: root.to_owned(),
            source,
        })?;
        if root.parent().is_none() {
            return Err(PatchError::WholeMachine);
        }
        Ok(Self {
            root,
            files: OnceCell::new(),
            read: RefCell::default(),
            macros: OnceCell::new(),
            limits: LIMITS,
            parsed: Cell::new(0),
            missed: OnceCell::new(),
        })
    }

    /// Whether all was seen that has been asked for until now.
    ///
    /// # Errors
    /// If the folder has too much: what was concluded from its sources may be wrong.
    pub(crate) fn all_seen(&self) -> Result<(), Unsure> {
        self.missed.get().cloned().map_or(Ok(()), Err)
    }

    /// Notes that the folder has too much of this, which is not looked at.
    fn miss(&self, what: &str) {
        let root = self.root.display();
        let why =
            format!("{root} has {what}: say with --root which folder has the program's sources");
        self.missed.get_or_init(|| Unsure::new(why));
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// All source files below the root, by their paths below it; none if these are too many.
    pub(crate) fn files(&self) -> &[PathBuf] {
        self.files.get_or_init(|| {
            let mut found = Vec::new();
            let mut folders = vec![PathBuf::new()];
            let mut entries_seen = 0;
            while let Some(folder) = folders.pop() {
                let Ok(entries) = std::fs::read_dir(self.root.join(&folder)) else {
                    continue;
                };
                for entry in entries.flatten() {
                    entries_seen += 1;
                    if entries_seen > self.limits.entries {
                        self.miss(&format!("more than {} files", self.limits.entries));
                        return Vec::new();
                    }
                    let (name, kind) = (entry.file_name(), entry.file_type());
                    let below = folder.join(&name);
                    match kind {
                        Ok(kind) if kind.is_dir() => {
                            let skipped = NOT_SOURCES.iter().any(|skipped| name == *skipped);
                            folders.extend((!skipped).then_some(below));
                        }
                        Ok(_) if Language::of(&below).is_some() => found.push(below),
                        _ => {}
                    }
                }
                if found.len() > self.limits.files {
                    self.miss(&format!("more than {} source files", self.limits.files));
                    return Vec::new();
                }
            }
            found.sort();
            found
        })
    }

    /// The file that a path of debug information means: the one below the root that has the most
    /// last components in common with it.
    pub(crate) fn locate(&self, path: &str) -> Result<PathBuf, Unsure> {
        let told = Path::new(path);
        if let Ok(below) = told.strip_prefix(&self.root)
            && self.root.join(below).is_file()
        {
            return Ok(below.to_owned());
        }
        let wanted = names(told);
        let in_common = |file: &Path| {
            let own = names(file);
            let pairs = own.iter().rev().zip(wanted.iter().rev());
            pairs.take_while(|(a, b)| a == b).count()
        };
        let mut best: Vec<&PathBuf> = Vec::new();
        let mut most = 1;
        for file in self.files() {
            let common = in_common(file);
            if common > most {
                most = common;
                best.clear();
            }
            if common == most && common > 0 {
                best.push(file);
            }
        }
        self.all_seen()?;
        match best[..] {
            [one] => Ok(one.clone()),
            [] => unsure!("there is no {path} below {}", self.root.display()),
            [one, two, ..] => unsure!(
                "{path} may be {} or {}: say with --root which folder is meant",
                one.display(),
                two.display()
            ),
        }
    }

    /// The file at this path below the root, parsed.
    pub(crate) fn source(&self, path: &Path) -> Result<Rc<Source>, Unsure> {
        if let Some(known) = self.read.borrow().get(path) {
            return Ok(Rc::clone(known));
        }
        let Some(language) = Language::of(path) else {
            unsure!("{} is not C, C++ or Rust", path.display());
        };
        let text = self.text(path)?;
        // Counted once, whatever is made of it.
        self.parsed.set(self.parsed.get() + text.len());
        if self.parsed.get() > self.limits.parsed {
            self.miss("too many sources with names that the data has");
            self.all_seen()?;
        }
        let mut seen = vec![text.clone()];
        if language != Language::Rust {
            seen[0] = self.macros().without_attributes(&text);
            let one = self
                .macros()
                .one_configuration(&seen[0], language == Language::Cpp);
            if one != seen[0] {
                seen.push(one);
            }
        }
        // A header is read as C++ only where it is not C.
        let mut views = Vec::new();
        for text in seen {
            let mut tree = parse(&text, language)?;
            if language == Language::Header && tree.root_node().has_error() {
                let other = parse(&text, Language::Cpp)?;
                if !other.root_node().has_error() {
                    tree = other;
                }
            }
            views.push(View { text, tree });
        }
        let source = Rc::new(Source {
            path: path.to_owned(),
            language,
            text,
            views,
        });
        self.read
            .borrow_mut()
            .insert(path.to_owned(), Rc::clone(&source));
        Ok(source)
    }

    /// All sources whose text has `word`: those of Rust, or those of C and C++.
    pub(crate) fn with_word(&self, word: &str, rust: bool) -> Vec<Rc<Source>> {
        self.files()
            .iter()
            .take_while(|_| self.missed.get().is_none())
            .filter(|file| (Language::of(file) == Some(Language::Rust)) == rust)
            .filter(|file| self.text(file).is_ok_and(|text| text.contains(word)))
            .filter_map(|file| self.source(file).ok())
            .collect()
    }

    /// The definitions of macros in all sources.
    pub(crate) fn macros(&self) -> &Macros {
        self.macros.get_or_init(|| {
            let mut all = Macros::default();
            let mut bytes = 0;
            for file in self.files() {
                if Language::of(file) != Some(Language::Rust)
                    && let Ok(text) = self.text(file)
                {
                    bytes += text.len();
                    if bytes > self.limits.preprocessed {
                        self.miss("too many sources in C or C++");
                        break;
                    }
                    all.read(&text);
                }
            }
            all
        })
    }

    pub(crate) fn text(&self, path: &Path) -> Result<String, Unsure> {
        if let Some(known) = self.read.borrow().get(path) {
            return Ok(known.text.clone());
        }
        let refused = |why| Unsure::new(format!("cannot read {}: {why}", path.display()));
        let file = self.open(path).map_err(refused)?;
        let mut text = String::new();
        let read = file.take(LARGEST + 1).read_to_string(&mut text);
        if text.len() as u64 > LARGEST {
            unsure!("{} is too large to be written by a person", path.display());
        }
        read.map(|_| text).map_err(refused)
    }

    /// Opens a regular file below the root, without waiting. The folder may be another's: a link in it may lead
    /// anywhere, and a name may be that of a pipe or a device.
    fn open(&self, path: &Path) -> io::Result<File> {
        let whole = self.root.join(path).canonicalize()?;
        if !whole.starts_with(&self.root) {
            return Err(io::Error::other("it is a link out of the folder"));
        }
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = File::from(rustix::fs::open(whole, flags, Mode::empty())?);
        if !file.metadata()?.is_file() {
            return Err(io::Error::other("it is no regular file"));
        }
        Ok(file)
    }
}

/// The names in a path, without `.`, `..` and the root.
fn names(path: &Path) -> Vec<&str> {
    path.components()
        .filter_map(|part| match part {
            Component::Normal(name) => name.to_str(),
            _ => None,
        })
        .collect()
}

fn parse(text: &str, language: Language) -> Result<Tree, Unsure> {
    let grammar = match language {
        Language::C | Language::Header => tree_sitter_c::LANGUAGE,
        Language::Cpp => tree_sitter_cpp::LANGUAGE,
        Language::Rust => tree_sitter_rust::LANGUAGE,
    };
    let mut parser = Parser::new();
    let loaded = parser.set_language(&grammar.into());
    loaded.map_err(|e| Unsure::new(format!("the parser can't be used: {e}")))?;
    parser
        .parse(text, None)
        .ok_or_else(|| Unsure::new("the source can't be parsed"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn what_a_compiler_made_is_no_source() {
        let of = |path: &str| Language::of(Path::new(path));
        assert_eq!(of("cache/@mcount.nim.c"), None);
        assert_eq!(of("cache/@mcount.nim.cpp"), None);
        assert_eq!(of("nim.c"), Some(Language::C));
    }

    /// What is seen of a folder with too much would be a part of it.
    #[test]
    fn a_folder_with_too_much_is_refused() {
        let root_of_all = Sources::below(Path::new("/"));
        assert!(matches!(root_of_all, Err(PatchError::WholeMachine)));
        let folder = tempfile::tempdir().unwrap();
        for name in ["a.c", "b.c", "c.txt"] {
            std::fs::write(folder.path().join(name), "int own;\n").unwrap();
        }
        let most = Limits {
            files: 2,
            entries: 3,
            parsed: 18,
            preprocessed: 18,
        };
        let asked = |limits| {
            let mut sources = Sources::below(folder.path()).unwrap();
            sources.limits = limits;
            let found = sources.with_word("own", false).len();
            (found, sources.all_seen().map_err(|why| why.0))
        };
        assert_eq!(asked(most), (2, Ok(())));
        let root = folder.path().canonicalize().unwrap();
        for (limits, found, what) in [
            (Limits { files: 1, ..most }, 0, "more than 1 source files"),
            (Limits { entries: 2, ..most }, 0, "more than 2 files"),
            (
                Limits { parsed: 17, ..most },
                1,
                "too many sources with names that the data has",
            ),
            (
                Limits {
                    preprocessed: 17,
                    ..most
                },
                1,
                "too many sources in C or C++",
            ),
        ] {
            let why = format!(
                "{} has {what}: say with --root which folder has the program's sources",
                root.display()
            );
            assert_eq!(asked(limits), (found, Err(why)));
        }
    }

    #[test]
    fn only_regular_files_below_the_folder_are_read() {
        let (folder, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (root, out) = (folder.path(), other.path());
        std::fs::write(root.join("own.c"), "int own;").unwrap();
        symlink("own.c", root.join("link.c")).unwrap();
        std::fs::write(out.join("secret.c"), "int secret;").unwrap();
        symlink(out.join("secret.c"), root.join("out.c")).unwrap();
        symlink("/dev/zero", root.join("endless.c")).unwrap();
        std::fs::write(root.join("large.c"), vec![b' '; LARGEST as usize + 1]).unwrap();
        let pipe = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        rustix::fs::mkfifoat(rustix::fs::CWD, root.join("pipe.c"), pipe).unwrap();
        let sources = Sources::below(root).unwrap();
        let text = |name: &str| sources.text(Path::new(name));
        assert_eq!(text("own.c").ok().as_deref(), Some("int own;"));
        assert_eq!(text("link.c").ok().as_deref(), Some("int own;"));
        for name in ["out.c", "endless.c", "large.c", "pipe.c", "nosuch.c"] {
            assert!(text(name).is_err(), "{name}");
        }
        let with = sources.with_word("int", false);
        let with: Vec<_> = with
            .iter()
            .filter_map(|source| source.path.to_str())
            .collect();
        assert_eq!(with, ["link.c", "own.c"]);
    }
}
