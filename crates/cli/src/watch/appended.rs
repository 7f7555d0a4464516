//! A file to which a watch appends its records, which others may move, fill or replace meanwhile.

use anyhow::{Context, Result};
use rustix::fs::OFlags;
use std::fs::File;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// A file to which records are appended.
pub struct Appended {
    path: PathBuf,
    lines: Lines<File>,
    /// The path named a plain file, or nothing, as the watch began: whatever else is there later was put
    /// there by somebody, who may be another user.
    is_plain: bool,
}

impl Appended {
    /// Opens it.
    ///
    /// # Errors
    /// If it can't be written to.
    pub fn open(path: &Path) -> Result<Self> {
        let path = path.to_owned();
        let there = std::fs::symlink_metadata(&path);
        let file = append(&path, OFlags::empty());
        Ok(Self {
            is_plain: there.map_or(true, |there| there.is_file()),
            lines: Lines {
                to: file.with_context(|| cannot_write(&path))?,
                is_cut: false,
            },
            path,
        })
    }

    /// Opens it again: it may have been moved away.
    ///
    /// # Errors
    /// If it can't be written to, or something else than a file has been put there.
    pub fn open_anew(&mut self) -> Result<()> {
        let flags = match self.is_plain {
            true => OFlags::NOFOLLOW | OFlags::NONBLOCK,
            false => OFlags::empty(),
        };
        let file = append(&self.path, flags).with_context(|| cannot_write(&self.path))?;
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

fn append(path: &Path, flags: OFlags) -> std::io::Result<File> {
    let mut options = File::options();
    options.append(true).create(true);
    options.custom_flags(flags.bits() as i32).open(path)
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
