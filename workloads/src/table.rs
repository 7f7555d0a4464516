//! The tables of expected verdicts, `expected.toml` and `pairs/expected.toml`, as typed values. The head
//! of the first explains their columns; it is read through [`Table::load`], the second through
//! [`Table::load_pairs`].

use crate::error::{Error, Result};
use crate::marker;
use crate::variant::Variant;
use serde::Deserialize;
use std::path::{Path, PathBuf};

/// All workloads.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Table {
    /// The machine on which the ratios were measured, in words.
    pub measured_on: String,
    /// The workloads, in the table's order; names are unique.
    #[serde(rename = "workload")]
    pub workloads: Vec<Workload>,
}

/// One program in its two variants.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Workload {
    /// Its unique name.
    pub name: String,
    /// File name in the table's folder of sources.
    pub source: String,
    /// The folder of the source, set when the table is loaded.
    #[serde(skip)]
    pub(crate) folder: PathBuf,
    /// Its language, which decides the compiler.
    pub language: Language,
    /// Compiler flags beside those that every workload gets (`-g`, `-pthread`).
    pub flags: Vec<String>,
    /// Threads at test size.
    #[serde(default = "two")]
    pub threads: u32,
    /// The program's SIZE at test size: 0.2 to 0.6 seconds for the shared
    /// variant with `threads` threads on the machine of `measured_on`.
    pub size: u64,
    /// Thread counts with which it can be run.
    #[serde(default = "thread_counts")]
    pub thread_counts: Vec<u32>,
    /// False if the checksum differs from run to run; `notes` have the reason.
    #[serde(default = "yes")]
    pub deterministic: bool,
    /// Whether the checksum is the same for all `thread_counts`.
    #[serde(default = "yes")]
    pub checksum_ignores_threads: bool,
    /// Whether the sharing slows the program down on the machine of `measured_on` by more than a
    /// tenth or two: such sharing must be found. For all other sharing, `shared` says whether it is
    /// certainly above or below the threshold.
    pub costs: bool,
    /// Time of the shared over the time of the fixed variant, at test size.
    pub ratio: f64,
    /// Its origin: paper and section; empty for our own ones.
    #[serde(default)]
    pub paper: String,
    /// Notes for the reader of a failed test.
    #[serde(default)]
    pub notes: String,
    /// The expected verdict of the shared variant.
    pub shared: Verdict,
    /// The expected verdict of the fixed variant.
    pub fixed: Verdict,
}

/// The expected verdict of one variant.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Verdict {
    /// Whether there must be no finding of kind `false` or `mixed` at the significance threshold,
    /// except for those in `findings` that may be reported.
    pub clean: bool,
    /// Findings that must or may be reported. Any other of kind `false` or `mixed` is a false
    /// positive. Findings of true sharing are reported with `--all` only.
    #[serde(default, rename = "finding")]
    pub findings: Vec<Expected>,
}

/// A finding that must or may be reported.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expected {
    /// The kinds that are right answers, the likeliest first.
    pub sharing: Vec<Sharing>,
    /// Whether it is a miss not to report it.
    pub need: Need,
    /// The storage of the object.
    pub object: ObjectKind,
    /// The variable's name; for heap objects the pointer by which it was accessed, which may be
    /// unknown.
    pub name: Option<String>,
    /// The type of the object or of its elements, in the syntax of its language without `struct`.
    #[serde(rename = "type")]
    pub type_name: Option<String>,
    /// Size of the object at test size, in bytes, for heap objects and variables.
    pub size: Option<u64>,
    /// Elements and fields that the first two threads access; with more threads, there are more.
    #[serde(default)]
    pub fields: Vec<String>,
    /// The other object on the line, if there are two.
    pub neighbour: Option<Neighbour>,
    /// The line of the allocation: some frame of the allocation's call stack has it.
    pub allocation: Option<Position>,
    /// Source lines that access it: at least one of them is reported. Inlined library code counts
    /// as the line into which it was inlined.
    #[serde(default)]
    pub touched_at: Vec<Position>,
    /// Whether an observer that sees only writes (twin and diff) can find it.
    #[serde(default = "yes")]
    pub visible_to_writes_only: bool,
    /// Whether the observer that compares pages of isolated threads must find it: not if the code
    /// that writes can't be executed in isolation, or only for short times.
    #[serde(default = "yes")]
    pub visible_to_diffs: bool,
}

/// The object beside a falsely shared one.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Neighbour {
    /// The variable's name.
    pub name: Option<String>,
    /// The line of its allocation.
    pub allocation: Option<Position>,
}

/// A line of a workload's source, found by its marker.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Position {
    /// The last part of the name of the function that the line is in, without
    /// class, namespace or module.
    pub function: String,
    /// The text of the comment at the end of the line.
    pub marker: String,
    /// Whether threads spend so little time there that a run of a test may have no sample of it.
    #[serde(default)]
    pub seldom: bool,
    /// The number of the line, from 1, set by [`Table::load`].
    #[serde(skip)]
    pub line: u32,
}

/// The kind of sharing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Sharing {
    /// Threads access disjoint bytes of one line.
    False,
    /// Threads access the same bytes.
    True,
    /// Both on one line.
    Mixed,
}

impl Sharing {
    /// The name in findings.
    pub const fn name(self) -> &'static str {
        match self {
            Self::False => "false",
            Self::True => "true",
            Self::Mixed => "mixed",
        }
    }
}

/// The storage of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ObjectKind {
    /// Allocated.
    Heap,
    /// A global or static variable.
    Global,
    /// Thread-local.
    Tls,
    /// A local variable of a thread.
    Stack,
    /// Memory from `mmap`.
    Mapping,
}

impl ObjectKind {
    /// The name in findings.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Heap => "heap",
            Self::Global => "global",
            Self::Tls => "tls",
            Self::Stack => "stack",
            Self::Mapping => "mapping",
        }
    }
}

/// Whether a finding must be reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Need {
    /// It must be reported.
    Must,
    /// It is true, but costs too little to be required.
    May,
}

/// The language of a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Language {
    /// C11 with GNU extensions, by gcc.
    C,
    /// C++17, by g++.
    Cpp,
    /// Rust 2021, by rustc alone.
    Rust,
}

/// From this ratio on the sharing costs: measured ratios of identical variants differ from 1 by up
/// to a tenth.
const COSTS_FROM: f64 = 1.2;

const fn two() -> u32 {
    2
}

const fn yes() -> bool {
    true
}

fn thread_counts() -> Vec<u32> {
    vec![1, 2, 4]
}

/// The folder of this crate, with the table and the sources.
pub(crate) fn home() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The folder of the sources that use `workload.h`.
pub(crate) fn programs() -> PathBuf {
    home().join("programs")
}

pub(crate) fn read(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).map_err(|source| Error::File {
        path: path.to_owned(),
        source,
    })
}

impl Table {
    /// Reads `workloads/expected.toml` and finds its markers in the sources.
    ///
    /// # Errors
    /// If a file can't be read, the table is malformed or contradicts itself,
    /// or a marker is not in its source exactly once.
    pub fn load() -> Result<Self> {
        Self::read(&home().join("expected.toml"), &programs())
    }

    /// Reads `workloads/pairs/expected.toml`: programs that were written without a look at the
    /// detector, for figures that were not learned from them.
    ///
    /// # Errors
    /// As [`Table::load`].
    pub fn load_pairs() -> Result<Self> {
        let folder = home().join("pairs");
        Self::read(&folder.join("expected.toml"), &folder)
    }

    fn read(path: &Path, folder: &Path) -> Result<Self> {
        let text = read(path)?;
        let mut table: Self = toml::from_str(&text).map_err(|source| Error::Syntax {
            path: path.to_owned(),
            source: Box::new(source),
        })?;
        for workload in &mut table.workloads {
            folder.clone_into(&mut workload.folder);
            workload.resolve_markers()?;
            workload.check_invariants()?;
        }
        let mut names: Vec<_> = table.workloads.iter().map(|w| w.name.as_str()).collect();
        names.sort_unstable();
        if let Some(pair) = names.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(Error::Table {
                workload: pair[0].to_owned(),
                what: "is in the table twice".to_owned(),
            });
        }
        Ok(table)
    }

    /// The workload of this name.
    ///
    /// # Errors
    /// If there is none.
    pub fn get(&self, name: &str) -> Result<&Workload> {
        self.workloads
            .iter()
            .find(|w| w.name == name)
            .ok_or_else(|| Error::Unknown(name.to_owned()))
    }
}

impl Workload {
    /// The source file.
    #[must_use]
    pub fn source_path(&self) -> PathBuf {
        self.folder.join(&self.source)
    }

    /// The expected verdict of `variant`.
    #[must_use]
    pub const fn verdict(&self, variant: Variant) -> &Verdict {
        match variant {
            Variant::Shared => &self.shared,
            Variant::Fixed => &self.fixed,
        }
    }

    fn resolve_markers(&mut self) -> Result<()> {
        let path = self.source_path();
        let source = read(&path)?;
        for verdict in [&mut self.shared, &mut self.fixed] {
            for position in verdict.positions_mut() {
                position.line = marker::line_of(&path, &source, &position.marker)?;
            }
        }
        Ok(())
    }

    fn check_invariants(&self) -> Result<()> {
        let wrong = |what: &str| {
            Err(Error::Table {
                workload: self.name.clone(),
                what: what.to_owned(),
            })
        };
        if !self.thread_counts.contains(&self.threads) {
            return wrong("`threads` is not among `thread_counts`");
        }
        if self.costs != (self.ratio >= COSTS_FROM) {
            return wrong("`costs` contradicts `ratio`");
        }
        if !self.fixed.clean {
            return wrong("the fixed variant must be clean");
        }
        for verdict in [&self.shared, &self.fixed] {
            if verdict.clean == verdict.must_find().any(|f| !f.is_true_sharing()) {
                return wrong("`clean` contradicts the findings that must be made");
            }
            if verdict.findings.iter().any(|f| f.sharing.is_empty()) {
                return wrong("a finding has no kind of sharing");
            }
        }
        Ok(())
    }
}

impl Verdict {
    /// The findings that must be reported.
    pub fn must_find(&self) -> impl Iterator<Item = &Expected> {
        self.findings.iter().filter(|f| f.need == Need::Must)
    }

    fn positions_mut(&mut self) -> impl Iterator<Item = &mut Position> {
        self.findings.iter_mut().flat_map(|f| {
            let neighbour = f.neighbour.as_mut().and_then(|n| n.allocation.as_mut());
            f.allocation
                .as_mut()
                .into_iter()
                .chain(neighbour)
                .chain(&mut f.touched_at)
        })
    }
}

impl Expected {
    /// Whether it can only be true sharing, which is no fault of the layout.
    #[must_use]
    pub fn is_true_sharing(&self) -> bool {
        self.sharing == [Sharing::True]
    }
}
