//! Builds programs of a suite in copies of its checkout, which itself is only read.

use super::spec::{Edit, Program, Variant, folder as descriptions};
use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A place for copies and programs, removed on drop.
pub struct Folder {
    scratch: PathBuf,
    checkout: PathBuf,
    within: PathBuf,
}

/// A program.
pub struct Built {
    /// Its file.
    pub file: PathBuf,
    /// The folder in which it runs.
    pub folder: PathBuf,
}

impl Folder {
    /// A place for copies of the checkout `dir`, whose commands run in its folder `within`.
    ///
    /// # Errors
    /// If `within` is not there, or nothing can be written.
    pub fn copy(dir: &Path, within: &Path) -> Result<Self> {
        let checkout = fs::canonicalize(dir).with_context(|| format!("no {}", dir.display()))?;
        let there = checkout.join(within);
        ensure!(there.is_dir(), "there is no {}", there.display());
        let scratch = std::env::temp_dir().join(format!("sunder-originals-{}", std::process::id()));
        fs::create_dir_all(&scratch)?;
        Ok(Self {
            scratch,
            checkout,
            within: within.to_owned(),
        })
    }

    /// A file of this name.
    pub fn scratch(&self, name: &str) -> PathBuf {
        self.scratch.join(name)
    }

    /// Builds a variant of a program for so many threads.
    ///
    /// # Errors
    /// If an edit does not fit the source, or the command fails.
    pub fn build(&self, program: &Program, variant: Variant, threads: u32) -> Result<Built> {
        let copy = self.scratch.join("copy");
        let _ = fs::remove_dir_all(&copy);
        copy_folder(&self.checkout, &copy)?;
        let within = copy.join(&self.within);
        if variant == Variant::Fixed {
            for edit in &program.edit {
                apply(&within, edit).with_context(|| program.name.clone())?;
            }
        }
        let name = format!(
            "{}-{variant:?}-{threads}",
            program.name.replace([' ', ','], "_")
        );
        let file = self.scratch.join(name);
        let header = descriptions().join("threads.h");
        let told = Command::new("sh")
            .args(["-c", &program.build])
            .current_dir(&within)
            .env("OUT", &file)
            .env("N", threads.to_string())
            .env(
                "THREADED",
                format!("-include {} -DTHREADS={threads}", header.display()),
            )
            .output()
            .context("no shell")?;
        ensure!(
            told.status.success() && file.is_file(),
            "{} does not build: {}",
            program.name,
            String::from_utf8_lossy(&told.stderr)
        );
        Ok(Built {
            file,
            folder: self.scratch.clone(),
        })
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.scratch);
    }
}

fn apply(folder: &Path, edit: &Edit) -> Result<()> {
    let file = folder.join(&edit.file);
    let text =
        fs::read(&file).with_context(|| format!("the source has no {}", edit.file.display()))?;
    // Sources of that time may be in Latin-1.
    let mut places = text.windows(edit.find.len()).enumerate();
    let mut next = || places.find(|(_, part)| *part == edit.find.as_bytes());
    let (Some((at, _)), None) = (next(), next()) else {
        anyhow::bail!(
            "{} has not exactly one `{}`",
            edit.file.display(),
            edit.find
        );
    };
    let mut changed = text[..at].to_vec();
    changed.extend(edit.with.as_bytes());
    changed.extend(&text[at + edit.find.len()..]);
    fs::write(&file, changed)?;
    Ok(())
}

/// Copies what is not version control's own.
fn copy_folder(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        let kind = entry.file_type()?;
        if kind.is_dir() && entry.file_name() != ".git" {
            copy_folder(&source, &target)?;
        } else if kind.is_file() {
            fs::copy(&source, &target)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(text: &[u8]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().expect("a folder");
        fs::write(folder.path().join("a.c"), text).expect("written");
        folder
    }

    fn edit() -> Edit {
        Edit {
            file: "a.c".into(),
            find: "} args;".into(),
            with: "} wide args;".into(),
        }
    }

    #[test]
    fn an_edit_replaces_its_text_whatever_the_encoding() {
        let folder = source(b"/* caf\xe9 */ struct {} args;\n");
        apply(folder.path(), &edit()).expect("it fits");
        let text = fs::read(folder.path().join("a.c")).expect("there");
        assert_eq!(text, b"/* caf\xe9 */ struct {} wide args;\n");
    }

    #[test]
    fn an_edit_that_fits_twice_or_never_is_an_error() {
        for text in [&b"} args; } args;"[..], b"} other;"] {
            let folder = source(text);
            assert!(apply(folder.path(), &edit()).is_err());
        }
    }
}
