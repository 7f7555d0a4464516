//! The programs under the tool: one of ours for each way of starting, which checks itself and ends
//! in one way only, and programs of the distribution.

use crate::mode::{Mode, Start};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use sunder_workloads::given;

/// What a program reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// Nothing.
    Nothing,
    /// A byte, after which it ends.
    LastByte,
    /// This file, of which half is there at first and the rest after the tool's end.
    Halves(PathBuf),
}

/// A program whose output and status are the same in every run.
#[derive(Clone, Debug)]
pub struct Subject {
    /// Its name in tables.
    pub name: String,
    /// The file to execute.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// What it reads.
    pub input: Input,
    /// Its exit status.
    pub status: i32,
    /// Whether `SIGTERM` and `SIGHUP` do nothing to it.
    pub ignores: bool,
    /// Whether it is ours.
    pub own: bool,
}

/// Where our programs' sources are.
const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../crates/cli/tests/programs");

impl Subject {
    /// The programs for a mode; they and their inputs are written to `folder`. The work takes
    /// natively about a third of a second for each of `scale`.
    ///
    /// # Errors
    /// If our program can't be compiled.
    pub fn of(mode: &Mode, sunder: &Path, folder: &Path, scale: f64) -> Result<Vec<Self>, String> {
        let mut all = vec![Self::own(mode, sunder, folder, scale)?];
        if mode.real {
            all.extend(Self::real(mode, folder, scale)?);
        }
        Ok(all)
    }

    fn own(mode: &Mode, sunder: &Path, folder: &Path, scale: f64) -> Result<Self, String> {
        let attached = mode.start == Start::Before;
        let name = if attached { "attached" } else { "endures" };
        let program = folder.join(name);
        let mut compiler = if mode.instrumented {
            let mut ours = Command::new(sunder);
            ours.arg("cc");
            ours
        } else {
            Command::new("gcc")
        };
        compiler.args(["-O1", "-g", "-pthread", "-o"]).arg(&program);
        compiler.arg(Path::new(SOURCES).join(name).with_extension("c"));
        let made = compiler
            .output()
            .map_err(|e| format!("{compiler:?}: {e}"))?;
        if !made.status.success() {
            let said = String::from_utf8_lossy(&made.stderr).into_owned();
            return Err(format!("{compiler:?}: {said}"));
        }
        let times = (4_000_000.0 * scale) as u64 / mode.slower;
        Ok(Self {
            name: name.into(),
            program,
            arguments: if attached {
                vec!["calls".into()]
            } else {
                vec!["8".into(), times.to_string()]
            },
            input: if attached {
                Input::LastByte
            } else {
                Input::Nothing
            },
            status: if attached { 0 } else { 3 },
            ignores: !attached,
            own: true,
        })
    }

    /// A compressor, if it is installed.
    fn real(mode: &Mode, folder: &Path, scale: f64) -> Result<Option<Self>, String> {
        let program = PathBuf::from("/usr/bin/xz");
        if !program.exists() {
            println!("SKIP: xz is not installed; setup/debian-packages installs it");
            return Ok(None);
        }
        let text = folder.join("text");
        let size = (2_000_000.0 * scale) as usize;
        fs::write(&text, given::text(size)).map_err(|e| e.to_string())?;
        let attached = mode.start == Start::Before;
        let words = ["-T2", "-0", "--block-size=128KiB", "-c"];
        let mut arguments: Vec<String> = words.map(Into::into).into();
        let input = if attached {
            Input::Halves(text)
        } else {
            arguments.push(text.display().to_string());
            Input::Nothing
        };
        Ok(Some(Self {
            name: "xz".into(),
            program,
            arguments,
            input,
            status: 0,
            ignores: false,
            own: false,
        }))
    }
}
