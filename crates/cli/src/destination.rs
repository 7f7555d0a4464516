//! A file that a report goes to. It is checked before a long run, opened before rights are given
//! up, and written at the end. Its path is followed before the run only: the program may put
//! something else there meanwhile, which must not be written to.

use crate::writer::{Put, Writer};
use anyhow::{Context, Result, bail};
use rustix::fs::OFlags;
use std::ffi::CString;
use std::fs::File;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use sunder_export::Place;

/// Where a report goes; `-` is standard output.
#[derive(Debug)]
pub struct Destination {
    path: PathBuf,
    /// The file, if it is open already.
    held: Option<File>,
    /// The folder that it is in, and its name there.
    place: Option<Place>,
    /// Who writes it, and its number there, if this process gives up the right to.
    writer: Option<(Rc<Writer>, usize)>,
}

/// Starts a process that keeps the right to write these, because this one is about to give it up.
/// Nothing is changed yet, if such a process can be started; otherwise they are opened. Call it only
/// while this process has one thread.
///
/// # Errors
/// If one has to be opened and can't be.
pub fn keep_writable(destinations: &mut [&mut Destination]) -> Result<()> {
    let is_file = |d: &&mut &mut Destination| d.path != Path::new("-");
    let mut files: Vec<_> = destinations.iter_mut().filter(is_file).collect();
    if files.is_empty() {
        return Ok(());
    }
    let puts = files.iter().map(|file| |text: &[u8]| file.put(text));
    let puts: Vec<_> = puts.collect();
    let puts: Vec<Put> = puts.iter().map(|put| put as Put).collect();
    let Ok(writer) = Writer::start(&puts).map(Rc::new) else {
        return files.iter_mut().try_for_each(|file| file.hold());
    };
    for (number, file) in files.iter_mut().enumerate() {
        file.writer = Some((Rc::clone(&writer), number));
    }
    Ok(())
}

impl Destination {
    /// Checks, before a long run, that a report can be written to `path`. Nothing is changed yet.
    ///
    /// # Errors
    /// If it can't, with the reason.
    pub fn new(path: &Path) -> Result<Self> {
        can_be_written(path)?;
        let mut made = Self {
            path: path.to_owned(),
            held: None,
            place: None,
            writer: None,
        };
        if path != Path::new("-") {
            if path.exists() {
                let file = File::options().write(true).open(path);
                made.held = Some(file.with_context(|| made.cannot_write())?);
            }
            made.place = Some(Place::after_links(path).with_context(|| made.cannot_write())?);
        }
        Ok(made)
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
        if self.path != Path::new("-") && self.held.is_none() {
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
        let written = match &self.writer {
            Some((writer, number)) => writer.write(*number, text),
            None => self.put(text.as_bytes()),
        };
        written.with_context(|| self.cannot_write())
    }

    /// Writes `text` to a file, with this process's own rights.
    ///
    /// # Errors
    /// If it can't be written.
    pub fn put(&self, text: &[u8]) -> std::io::Result<()> {
        match (&self.held, &self.place) {
            (Some(file), _) if !is_gone(file) => {
                shorten(file).and_then(|()| (&*file).write_all(text))
            }
            (_, Some(place)) => put(place, text),
            _ => std::fs::write(&self.path, text),
        }
    }

    fn cannot_write(&self) -> String {
        format!("cannot write {}", self.path.display())
    }
}

/// Whether a file has been removed from its folder.
fn is_gone(file: &File) -> bool {
    file.metadata().is_ok_and(|m| m.is_file() && m.nlink() == 0)
}

/// Puts a file with this text into the folder, in place of what has the name now.
fn put(place: &Place, text: &[u8]) -> std::io::Result<()> {
    // Usually nothing has the name.
    if let Ok(mut file) = place.open(OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL) {
        return file.write_all(text);
    }
    place.replace(&format!(".{}", std::process::id()), text)
}

/// Writes `text` to standard output. A closed pipe is not an error.
///
/// # Errors
/// If standard output can't be written.
pub fn print(text: &str) -> Result<()> {
    print_to_reader(text).map(drop)
}

/// As [`print`]; whether somebody may still read it.
///
/// # Errors
/// If standard output can't be written.
pub fn print_to_reader(text: &str) -> Result<bool> {
    match std::io::stdout().write_all(text.as_bytes()) {
        Ok(()) => Ok(true),
        Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => Ok(false),
        Err(e) => Err(e).context("cannot write to standard output"),
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

    /// What the program of another user may do in its own folder while root's Sunder observes it.
    #[test]
    fn a_link_that_is_put_in_its_place_is_not_followed() {
        for was_there in [false, true] {
            let folder = tempfile::tempdir().expect("a folder");
            let (path, other) = (folder.path().join("report"), folder.path().join("other"));
            std::fs::write(&other, "of another").expect("written");
            if was_there {
                std::fs::write(&path, "an old one").expect("written");
            }
            let destination = Destination::new(&path).expect("it can be written");
            assert_eq!(path.exists(), was_there, "nothing is changed yet");
            let _ = std::fs::remove_file(&path);
            std::os::unix::fs::symlink(&other, &path).expect("made");
            destination.write("new").expect("it replaces the link");
            let text = |path: &Path| std::fs::read_to_string(path).expect("readable");
            assert_eq!(text(&other), "of another");
            assert_eq!(text(&path), "new");
            let names = std::fs::read_dir(folder.path()).expect("readable");
            assert_eq!(names.count(), 2);
        }
    }

    #[test]
    fn a_link_of_the_users_own_is_followed() {
        let folder = tempfile::tempdir().expect("a folder");
        let (path, real) = (folder.path().join("report"), folder.path().join("real"));
        std::fs::write(&real, "an old one").expect("written");
        std::os::unix::fs::symlink(&real, &path).expect("made");
        let destination = Destination::new(&path).expect("it can be written");
        destination.write("new").expect("it can be written");
        assert_eq!(std::fs::read_to_string(&real).expect("readable"), "new");
        std::fs::remove_file(&real).expect("ours");
        let destination = Destination::new(&path).expect("it can be written");
        destination.write("newer").expect("it can be made");
        assert_eq!(std::fs::read_to_string(&real).expect("readable"), "newer");
        assert!(path.is_symlink());
    }

    #[test]
    fn a_device_can_be_held_and_written() {
        let mut null = Destination::new(Path::new("/dev/null")).expect("it can be written");
        null.hold().expect("it can be opened");
        null.write("text").expect("it takes everything");
    }
}
