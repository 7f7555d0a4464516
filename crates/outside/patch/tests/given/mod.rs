//! Findings made by hand, their sources in a folder, and compilers that judge the changed sources.

#![allow(dead_code, reason = "each test file uses a part of it")]

use std::path::{Path, PathBuf};
use std::process::Command;
use sunder_findings::{Finding, Findings, Frame, Line, Location, Object, ThreadUse, Word};
use sunder_patch::{Options, Proposals, Way, propose};

/// The folder in which the debug information says the program was built.
const BUILT_IN: &str = "/home/somebody/project";

pub fn place(file: &str, line: u32) -> Location {
    Location {
        file: format!("{BUILT_IN}/{file}"),
        line: Some(line),
    }
}

pub fn frame(function: &str, at: Option<(&str, u32)>) -> Frame {
    let location = at.map(|(file, line)| place(file, line));
    Frame {
        function: function.into(),
        line: location.as_ref().and_then(|l| l.line),
        file: location.map(|l| l.file),
        ..Frame::default()
    }
}

/// A word at an offset from the object's start that one thread writes.
pub fn word(offset: u32, field: &str, thread: u32) -> Word {
    Word {
        offset,
        size: 8,
        field: Some(field.into()),
        threads: vec![ThreadUse {
            id: thread,
            writes: 1000,
            ..ThreadUse::default()
        }],
    }
}

pub fn finding(object: Object, words: &[Word]) -> Finding {
    Finding {
        object,
        lines: vec![Line {
            object_offset: Some(0),
            words: words.to_vec(),
            ..Line::default()
        }],
        ..Finding::default()
    }
}

/// A source with one finding, and what is proposed for it.
pub struct Case {
    folder: tempfile::TempDir,
    file: String,
    proposals: Proposals,
}

impl Case {
    pub fn new(file: &str, source: &str, object: Object, words: &[Word]) -> Self {
        Self::of(file, source, finding(object, words))
    }

    /// As `new`, with another file in the folder.
    pub fn beside(
        other: &str,
        text: &str,
        file: &str,
        source: &str,
        object: Object,
        words: &[Word],
    ) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join(other), text).expect("written");
        Self::within(folder, file, source, finding(object, words))
    }

    pub fn of(file: &str, source: &str, finding: Finding) -> Self {
        Self::within(
            tempfile::tempdir().expect("a folder"),
            file,
            source,
            finding,
        )
    }

    fn within(folder: tempfile::TempDir, file: &str, source: &str, finding: Finding) -> Self {
        std::fs::write(folder.path().join(file), source).expect("written");
        let mut findings = Findings::default();
        findings.machine.line_size = 64;
        findings.findings = vec![Finding { rank: 1, ..finding }];
        let options = Options {
            root: Some(folder.path().to_owned()),
            ranks: vec![1],
            ..Options::default()
        };
        let proposals = propose(&findings, &options).expect("the folder is there");
        Self {
            folder,
            file: file.to_owned(),
            proposals,
        }
    }

    pub fn ways(&self) -> &[Way] {
        match &self.proposals.list[0].ways {
            Ok(ways) => ways,
            Err(why) => panic!("no patch: {}", why.0),
        }
    }

    /// Why there is no patch.
    pub fn refusal(&self) -> String {
        match &self.proposals.list[0].ways {
            Ok(_) => panic!("a patch:\n{}", self.diff()),
            Err(why) => why.0.clone(),
        }
    }

    pub fn diff(&self) -> String {
        self.proposals.diff(&self.ways()[0].edits)
    }

    /// Applies the diff with `patch`, adds `more` to the file, and returns its path.
    fn applied(&self, more: &str) -> PathBuf {
        let folder = self.folder.path();
        let diff = folder.join("fix.diff");
        std::fs::write(&diff, self.diff()).expect("written");
        let out = Command::new("patch")
            .args(["-p1", "-i"])
            .arg(&diff)
            .current_dir(folder)
            .output();
        let text = match out {
            Ok(out) => {
                assert!(
                    out.status.success(),
                    "{}",
                    String::from_utf8_lossy(&out.stdout)
                );
                std::fs::read_to_string(folder.join(&self.file)).expect("readable")
            }
            // Not each machine has the program: the new text is the same.
            Err(_) => self.proposals.changed(&self.ways()[0].edits)[0].1.clone(),
        };
        let path = folder.join(format!("new-{}", self.file));
        std::fs::write(&path, format!("{text}\n{more}\n")).expect("written");
        path
    }

    pub fn compiles_as(&self, compiler: &str, flags: &[&str], more: &str) {
        let source = self.applied(more);
        compile(compiler, flags, &source, &self.folder.path().join("out"));
    }

    pub fn compiles_with(&self, more: &str) {
        self.compiles_as("gcc", &["-Wall", "-Wextra", "-Werror", "-c"], more);
    }

    /// Compiles and runs it; it must succeed.
    pub fn runs_with(&self, more: &str) {
        let source = self.applied(more);
        let program = self.folder.path().join("program");
        let (compiler, flags) = match self.file.rsplit('.').next() {
            Some("rs") => ("rustc", ["--edition=2021", "-Dwarnings"]),
            Some("cpp") => ("g++", ["-O2", "-Wall"]),
            _ => ("gcc", ["-O2", "-Wall"]),
        };
        compile(compiler, &flags, &source, &program);
        let status = Command::new(&program).status().expect("it starts");
        assert!(status.success(), "{status}\n{}", self.diff());
    }
}

fn compile(compiler: &str, flags: &[&str], source: &Path, to: &Path) {
    let out = Command::new(compiler)
        .args(flags)
        .arg("-o")
        .arg(to)
        .arg(source)
        .output();
    let out = out.expect("the compilers that the README names are needed");
    let text = std::fs::read_to_string(source).unwrap_or_default();
    assert!(
        out.status.success(),
        "{}\n{text}",
        String::from_utf8_lossy(&out.stderr)
    );
}
