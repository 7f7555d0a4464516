//! A file that a report goes to. It is checked before a long run, opened before rights are given
//! up, and written at the end.

use anyhow::{Context, Result, bail};
use std::ffi::CString;
use std::fs::File;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Where a report goes; `-` is standard output.
#[derive(Debug)]
pub struct Destination {
    path: PathBuf,
    /// The file, if it is open already.
    held: Option<File>,
}

impl Destination {
    /// Checks, before a long run, that a report can be written to `path`. Nothing is changed yet.
    ///
    /// # Errors
    /// If it can't, with the reason.
    pub fn new(path: &Path) -> Result<Self> {
        can_be_written(path)?;
        Ok(Self {
            path: path.to_owned(),
            held: None,
        })
    }

    /// The path that the user gave.
    #[cfg(test)]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Opens the file, because the rights that this takes are about to be given up. What is in it
    /// stays until it is written.
    ///
    /// # Errors
    /// If it can't be opened.
    pub fn hold(&mut self) -> Result<()> {
        if self.path != Path::new("-") {
            let mut options = File::options();
            let options = options.write(true).create(true).truncate(false);
            let file = options.open(&self.path);
            self.held = Some(file.with_context(|| self.cannot_write())?);
        }
        Ok(())
    }

    /// Writes `text`.
    ///
    /// # Errors
    /// If it can't be written.
    pub fn write(&self, text: &str) -> Result<()> {
        if self.path == Path::new("-") {
            return print(text);
        }
        let written = match &self.held {
            Some(file) => shorten(file).and_then(|()| (&*file).write_all(text.as_bytes())),
            None => std::fs::write(&self.path, text),
        };
        written.with_context(|| self.cannot_write())
    }

    fn cannot_write(&self) -> String {
        format!("cannot write {}", self.path.display())
    }
}

/// Writes `text` to standard output. A closed pipe is not an error.
///
/// # Errors
/// If standard output can't be written.
pub fn print(text: &str) -> Result<()> {
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(e) if e.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(e).context("cannot write to standard output")
        }
        _ => Ok(()),
    }
}

/// Takes away what was in a regular file; devices and pipes have nothing to take away.
fn shorten(file: &File) -> std::io::Result<()> {
    if file.metadata()?.is_file() {
        file.set_len(0)?;
    }
    Ok(())
}

fn can_be_written(path: &Path) -> Result<()> {
    if path == Path::new("-") {
        return Ok(());
    }
    let shown = path.display();
    if path.is_dir() {
        bail!("cannot write {shown}: it is a folder");
    }
    let folder = match path.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    };
    if !folder.is_dir() {
        bail!(
            "cannot write {shown}: there is no folder {}",
            folder.display()
        );
    }
    let asked = if path.exists() { path } else { folder };
    let name = CString::new(asked.as_os_str().as_bytes())
        .with_context(|| format!("cannot write {shown}"))?;
    // SAFETY: the call queries a path that ends with zero.
    if unsafe { libc::faccessat(libc::AT_FDCWD, name.as_ptr(), libc::W_OK, libc::AT_EACCESS) } != 0
    {
        let error = std::io::Error::last_os_error();
        return Err(error).with_context(|| format!("cannot write {shown}"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_held_file_keeps_its_text_until_it_is_written() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("report");
        std::fs::write(&path, "an old and longer report").expect("written");
        let mut destination = Destination::new(&path).expect("it can be written");
        destination.hold().expect("it can be opened");
        let text = || std::fs::read_to_string(&path).expect("readable");
        assert_eq!(text(), "an old and longer report");
        destination.write("new").expect("it is open");
        assert_eq!(text(), "new");
    }

    #[test]
    fn a_device_can_be_held_and_written() {
        let mut null = Destination::new(Path::new("/dev/null")).expect("it can be written");
        null.hold().expect("it can be opened");
        null.write("text").expect("it takes everything");
    }
}
