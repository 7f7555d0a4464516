//! The table of expected verdicts, `expected.toml`, as typed values. Its own
//! head explains its columns; tests read it through [`Table::load`].

use crate::{Error, Result, Variant, marker};
use serde::Deserialize;
use std::path::{Path, PathBuf};

/// All workloads.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Table {
    /// In words, the machine on which the ratios were measured.
    pub measured_on: String,
    /// In the table's order; names are unique.
    #[serde(rename = "workload")]
    pub workloads: Vec<Workload>,
}

/// One program in its two variants.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Workload {
    /// Unique.
    pub name: String,
    /// File name in `workloads/programs`.
    pub source: String,
    /// What it is written in; decides the compiler.
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
    /// False if the checksum differs from run to run; `notes` say why.
    #[serde(default = "yes")]
    pub deterministic: bool,
    /// Whether the checksum is the same for all `thread_counts`.
    #[serde(default = "yes")]
    pub checksum_ignores_threads: bool,
    /// Whether the sharing slows the program down on the machine of
    /// `measured_on` by more than a tenth or two: what does must be found. Of the
    /// rest `shared` says whether it is surely above or below the threshold.
    pub costs: bool,
    /// Time of the shared over the time of the fixed variant, at test size.
    pub ratio: f64,
    /// What it follows: paper and section; empty for those of today.
    #[serde(default)]
    pub paper: String,
    /// What a reader of a failed test should know.
    #[serde(default)]
    pub notes: String,
    /// What is expected of the shared variant.
    pub shared: Verdict,
    /// What is expected of the fixed variant.
    pub fixed: Verdict,
}

/// What a detector must say of one variant.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Verdict {
    /// Whether there must be no finding of kind `false` or `mixed` at the
    /// significance threshold, but for those in `findings` that may be.
    pub clean: bool,
    /// What must or may be found. Anything else of kind `false` or `mixed` is a
    /// false positive. Findings of true sharing show with `--all` only.
    #[serde(default, rename = "finding")]
    pub findings: Vec<Expected>,
}

/// A finding that must or may be reported.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expected {
    /// Any of these is right; the first is the most likely.
    pub sharing: Vec<Sharing>,
    /// Whether it is a miss not to report it.
    pub need: Need,
    /// Where the object lives.
    pub object: ObjectKind,
    /// The variable's name; for heap objects the pointer it was seen through,
    /// which need not be known.
    pub name: Option<String>,
    /// The type of the object or of its elements, as the language writes it
    /// without `struct`.
    #[serde(rename = "type")]
    pub type_name: Option<String>,
    /// Bytes of the object at test size, for heap objects and variables.
    pub size: Option<u64>,
    /// Elements and fields that the threads touch. Those of the first two
    /// threads: with more, there are more.
    #[serde(default)]
    pub fields: Vec<String>,
    /// The other object on the line, where there are two.
    pub neighbour: Option<Neighbour>,
    /// Where it was allocated: some frame of the allocation's stack.
    pub allocation: Option<Position>,
    /// Source lines that touch it, inlined library code counted as the line that
    /// it was inlined into: at least one of them is reported.
    #[serde(default)]
    pub touched_at: Vec<Position>,
    /// Whether an observer that sees writes only (twin and diff) can find it.
    #[serde(default = "yes")]
    pub visible_to_writes_only: bool,
    /// Whether it is a miss if comparing pages of isolated threads does not find it: not
    /// where the code that writes can't be executed in isolation, or not for long.
    #[serde(default = "yes")]
    pub visible_to_diffs: bool,
}

/// The object beside a falsely shared one.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Neighbour {
    /// The variable's name.
    pub name: Option<String>,
    /// Where it was allocated.
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
    /// The line from 1, resolved by [`Table::load`].
    #[serde(skip)]
    pub line: u32,
}

/// The kind of sharing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Sharing {
    /// Threads touch disjoint bytes of one line.
    False,
    /// Threads touch the same bytes.
    True,
    /// Both on one line.
    Mixed,
}

impl Sharing {
    /// As the findings write it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::False => "false",
            Self::True => "true",
            Self::Mixed => "mixed",
        }
    }
}

/// Where an object lives.
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
}

impl ObjectKind {
    /// As the findings write it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Heap => "heap",
            Self::Global => "global",
            Self::Tls => "tls",
            Self::Stack => "stack",
        }
    }
}

/// Whether a finding is a duty.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Need {
    /// Not to report it is a miss.
    Must,
    /// It is true, but it costs too little to be missed.
    May,
}

/// What a workload is written in.
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

/// From this ratio on the sharing is said to cost: measured ratios of variants
/// that differ in nothing stray by up to a tenth.
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

/// The folder of this crate, which the table and the sources lie in.
pub(crate) fn home() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The folder of the sources.
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
        let path = home().join("expected.toml");
        let text = read(&path)?;
        let mut table: Self = toml::from_str(&text).map_err(|source| Error::Syntax {
            path,
            source: Box::new(source),
        })?;
        for workload in &mut table.workloads {
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
        programs().join(&self.source)
    }

    /// What is expected of `variant`.
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
    /// The findings that it is a miss not to make.
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
    /// Whether it is true sharing for sure, which is no fault of the layout.
    #[must_use]
    pub fn is_true_sharing(&self) -> bool {
        self.sharing == [Sharing::True]
    }
}
