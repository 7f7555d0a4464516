//! What a suite has: its programs, how they are built and run, and how they are fixed. Read from
//! `eval/originals`. It runs nothing.

use super::inputs;
use anyhow::{Context, Result};
use serde::Deserialize;
use std::path::{Path, PathBuf};

/// The suites.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Kind {
    /// Phoenix 2.0, its pthread versions.
    Phoenix,
    /// PARSEC 3.0, programs without further libraries.
    Parsec,
    /// Splash-3, kernels.
    Splash3,
}

impl Kind {
    /// As files and records name it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Phoenix => "phoenix",
            Self::Parsec => "parsec",
            Self::Splash3 => "splash3",
        }
    }
}

/// A suite.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Suite {
    /// What it is, for the record.
    pub what: String,
    /// The folder of the checkout in which commands run.
    pub folder: PathBuf,
    /// Its programs.
    pub program: Vec<Program>,
}

/// A program of a suite.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Program {
    /// Its name in tables.
    pub name: String,
    /// A shell command in the suite's folder. `$OUT` is the file to make, `$N` the number of threads,
    /// and `$THREADED` are flags with which a program for all CPUs starts that many threads.
    pub build: String,
    /// Its arguments; `$INPUT` stands for the input's path, `$N` for the number of threads.
    pub run: String,
    /// Lines of its output with one of these words are not compared: they tell times.
    #[serde(default)]
    pub varies: Vec<String>,
    /// The input, if it reads one.
    #[serde(default)]
    input: Option<Input>,
    /// How it is fixed, for readers.
    #[serde(default)]
    pub fixed_by: Option<String>,
    /// The same as edits; without any there is no fixed variant.
    #[serde(default)]
    pub edit: Vec<Edit>,
}

/// A file or folder that is made for a program.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Input {
    kind: inputs::Kind,
    /// About this many, at size 1.
    bytes: u64,
}

/// A change of a source.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Edit {
    /// The file, below the suite's folder.
    pub file: PathBuf,
    /// The text that is replaced; it must be there exactly once.
    pub find: String,
    /// What comes in its place.
    pub with: String,
}

/// Which form of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variant {
    /// As it is.
    Shared,
    /// With its edits.
    Fixed,
}

impl Suite {
    /// Reads the description of a suite.
    ///
    /// # Errors
    /// If it is not there or can't be read.
    pub fn of(kind: Kind) -> Result<Self> {
        let file = folder().join(kind.name()).with_extension("toml");
        let text = std::fs::read_to_string(&file)
            .with_context(|| format!("cannot read {}", file.display()))?;
        toml::from_str(&text).with_context(|| format!("{} is not as expected", file.display()))
    }
}

impl Program {
    /// The part of its output that is the same in each run.
    pub fn compared(&self, output: &[u8]) -> Vec<u8> {
        let is_fixed = |line: &&[u8]| {
            let line = String::from_utf8_lossy(line);
            !self.varies.iter().any(|word| line.contains(word.as_str()))
        };
        let lines = output.split_inclusive(|&byte| byte == b'\n');
        lines.filter(is_fixed).flatten().copied().collect()
    }

    /// Makes the input of this size, if the program has one.
    ///
    /// # Errors
    /// If it can't be written.
    pub fn input(&self, size: f64) -> Result<Option<PathBuf>> {
        let make = |input: &Input| inputs::make(input.kind, (input.bytes as f64 * size) as u64);
        self.input.as_ref().map(make).transpose()
    }
}

/// Where the descriptions are.
pub fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("originals")
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::ValueEnum;

    #[test]
    fn lines_that_tell_times_are_not_compared() {
        let suite = Suite::of(Kind::Phoenix).expect("it is there");
        let program = suite.program.iter().find(|p| p.name == "string_match");
        let program = program.expect("it is there");
        let compared = program.compared(b"Keys\nString Match: Completed 3\nFOUND\n");
        assert_eq!(compared, b"Keys\nFOUND\n");
    }

    #[test]
    fn all_descriptions_can_be_read_and_name_their_fixes() {
        for kind in Kind::value_variants() {
            let suite = Suite::of(*kind).expect("it is there");
            assert!(!suite.program.is_empty());
            for program in &suite.program {
                assert!(program.build.contains("$OUT"), "{}", program.name);
                assert_eq!(
                    program.input.is_some(),
                    program.run.contains("$INPUT"),
                    "{}",
                    program.name
                );
                assert_eq!(program.fixed_by.is_some(), !program.edit.is_empty());
            }
        }
    }
}
