//! A file to which a watch appends its records, which others may move, fill or replace meanwhile. Its path
//! must not be followed again after the watch has begun: another user may own a folder on the way.

use anyhow::{Context, Result};
use rustix::fs::OFlags;
use std::fs::File;
use std::io::{Error, ErrorKind, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use sunder_export::Place;

/// A file to which records are appended.
pub struct Appended {
    path: PathBuf,
    lines: Lines<File>,
    /// Where the path of a plain file led as the watch began. Pipes and devices have none: nobody moves
    /// them away.
    place: Option<Place>,
}

impl Appended {
    /// Opens it.
    ///
    /// # Errors
    /// If it can't be written to.
    pub fn open(path: &Path) -> Result<Self> {
        let path = path.to_owned();
        let open = || {
            let to = File::options().append(true).create(true).open(&path)?;
            let is_plain = to.metadata()?.is_file();
            let place = is_plain.then(|| Place::after_links(&path)).transpose()?;
            Ok::<_, Error>((to, place))
        };
        let (to, place) = open().with_context(|| cannot_write(&path))?;
        Ok(Self {
            place,
            lines: Lines { to, is_cut: false },
            path,
        })
    }

    /// Opens it again: it may have been moved away.
    ///
    /// # Errors
    /// If it can't be written to, or something else than a plain file has been put there.
    pub fn open_anew(&mut self) -> Result<()> {
        let Some(place) = &self.place else {
            return Ok(());
        };
        let file = append(place).with_context(|| cannot_write(&self.path))?;
        self.lines.is_cut &= file.metadata().is_ok_and(|it| it.len() > 0);
        self.lines.to = file;
        Ok(())
    }

    /// Adds a line.
    ///
    /// # Errors
    /// If it can't be written, or only in part.
    pub fn add(&mut self, line: &[u8]) -> Result<()> {
        self.lines
            .add(line)
            .with_context(|| cannot_write(&self.path))
    }
}

/// Opens a plain file, and waits for nobody. One with a second name may be a file from elsewhere.
fn append(place: &Place) -> std::io::Result<File> {
    let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE | OFlags::NONBLOCK;
    let file = place.open(flags)?;
    let found = file.metadata()?;
    match found.is_file() && found.nlink() == 1 {
        true => Ok(file),
        false => Err(Error::other(
            "what is there now is no plain file of one name",
        )),
    }
}

fn cannot_write(path: &Path) -> String {
    format!("cannot write to {}", path.display())
}

/// Lines of which each is whole, or stands alone: a reader then loses one record, not two.
struct Lines<W> {
    to: W,
    /// Whether it ends with the beginning of a line, of which the rest could not be written.
    is_cut: bool,
}

impl<W: Write> Lines<W> {
    fn add(&mut self, line: &[u8]) -> std::io::Result<()> {
        let whole = match self.is_cut {
            true => [b"\n", line].concat(),
            false => line.to_vec(),
        };
        let mut left = &whole[..];
        while !left.is_empty() {
            match self.to.write(left) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(written) => {
                    left = &left[written..];
                    self.is_cut = !left.is_empty() && left.len() < line.len();
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{CWD, FileType, Mode, mknodat};

    /// A disk that takes so many bytes and then is full.
    struct Disk {
        holds: Vec<u8>,
        room: usize,
    }

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            let taken = bytes.len().min(self.room);
            self.holds.extend(&bytes[..taken]);
            self.room -= taken;
            if taken == 0 {
                return Err(ErrorKind::StorageFull.into());
            }
            Ok(taken)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    fn text(path: &Path) -> String {
        std::fs::read_to_string(path).expect("it is there")
    }

    /// As `logrotate` does, where the path is a link, too.
    #[test]
    fn a_file_that_was_moved_away_is_made_anew() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name| folder.path().join(name);
        std::os::unix::fs::symlink("real", at("link")).expect("made");
        for (path, real) in [("plain", "plain"), ("link", "real")] {
            let mut file = Appended::open(&at(path)).expect("it is made");
            file.add(b"one\n").expect("there is room");
            std::fs::rename(at(real), at("old")).expect("ours");
            file.add(b"two\n").expect("there is room");
            file.open_anew().expect("it is made anew");
            file.add(b"three\n").expect("there is room");
            assert_eq!(text(&at("old")), "one\ntwo\n");
            assert_eq!(text(&at(real)), "three\n");
        }
        assert!(at("link").is_symlink());
    }

    /// What another user may do in a folder of its own, in which root's watch appends to a file.
    #[test]
    fn nothing_is_followed_that_was_put_there_meanwhile() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name| folder.path().join(name);
        for one in ["log", "other"] {
            std::fs::create_dir(at(one)).expect("made");
        }
        std::fs::write(at("other/x"), "of another").expect("written");
        let mut file = Appended::open(&at("log/x")).expect("it is made");
        // A folder in place of ours.
        std::fs::rename(at("log"), at("moved")).expect("ours");
        std::os::unix::fs::symlink(at("other"), at("log")).expect("made");
        file.open_anew().expect("it is where it was");
        file.add(b"one\n").expect("there is room");
        assert_eq!(text(&at("moved/x")), "one\n");
        // A link, another's file, and a pipe that is read, in place of the file.
        let moved = at("moved/x");
        std::fs::remove_file(&moved).expect("ours");
        std::fs::hard_link(at("other/x"), &moved).expect("made");
        file.open_anew().expect_err("it is a second name");
        std::fs::remove_file(&moved).expect("ours");
        std::os::unix::fs::symlink(at("other/x"), &moved).expect("made");
        file.open_anew().expect_err("it is a link");
        std::fs::remove_file(&moved).expect("ours");
        mknodat(CWD, &moved, FileType::Fifo, Mode::RWXU, 0).expect("a pipe");
        let flags = OFlags::RDONLY | OFlags::NONBLOCK;
        let reader = rustix::fs::open(&moved, flags, Mode::empty()).expect("a pipe");
        file.open_anew().expect_err("it is a pipe");
        drop(reader);
        assert_eq!(text(&at("other/x")), "of another");
        let names = std::fs::read_dir(at("other")).expect("it is there");
        assert_eq!(names.count(), 1);
    }

    #[test]
    fn a_device_stays_open() {
        let mut null = Appended::open(Path::new("/dev/null")).expect("it takes everything");
        null.open_anew().expect("it is open");
        null.add(b"one\n").expect("it takes everything");
    }

    #[test]
    fn a_line_after_a_cut_one_is_whole() {
        for (room, wanted) in [
            (5, "one\nt\nfour\nfive\n"),
            (8, "one\ntwo\nfour\nfive\n"),
            (4, "one\nfour\nfive\n"),
        ] {
            let to = Disk {
                holds: Vec::new(),
                room,
            };
            let mut lines = Lines { to, is_cut: false };
            let told: Vec<bool> = ["one\n", "two\n", "three\n"]
                .map(|line| lines.add(line.as_bytes()).is_ok())
                .to_vec();
            assert_eq!(told, [true, room == 8, false], "{room}");
            lines.to.room = 100;
            for line in ["four\n", "five\n"] {
                lines.add(line.as_bytes()).expect("there is room");
            }
            assert_eq!(String::from_utf8_lossy(&lines.to.holds), wanted);
        }
    }
}
