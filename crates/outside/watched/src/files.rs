//! Which files are read: those that are named, and all below a folder that is named. In a folder no link
//! is followed, and nothing but plain files is opened, since opening a pipe would wait for ever.

use crate::batch;
use crate::lines::{self, Ended};
use anyhow::{Context, Result};
use flate2::bufread::MultiGzDecoder;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use sunder_findings::Shown;
use sunder_fleet::{Gather, Reading, Wrong};

/// Folders below each other that are entered.
const DEEPEST: u32 = 8;
/// The most files of one folder that is named.
const MOST_FILES: u64 = 1_000_000;
/// The most names of unread files that are kept.
const MOST_NAMES: usize = 10;
/// Bytes that are read at a time.
const CHUNK: usize = 64 * 1024;
/// The first two bytes of what gzip has packed (RFC 1952, section 2.3.1).
const GZIP: [u8; 2] = [0x1f, 0x8b];
/// The largest file after unpacking: a few packed bytes may become very many.
const LARGEST_UNPACKED: u64 = 64 << 30;

/// Reads one path.
///
/// # Errors
/// If it can't be opened: it was named.
pub fn read(path: &Path, gather: &mut Gather, reading: &mut Reading) -> Result<()> {
    let cannot = || format!("cannot read {}", path.display());
    if fs::metadata(path).with_context(cannot)?.is_dir() {
        let mut found = Vec::new();
        below(path, DEEPEST, &mut found, reading).with_context(cannot)?;
        // The order is fixed, so that two reports of one folder are alike.
        found.sort();
        for path in found {
            match open_plain(&path).and_then(|file| one(file, gather, reading)) {
                // A watch has sent what waited in its spool.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => unread(&path, &error, reading),
                Ok(()) => {}
            }
        }
        return Ok(());
    }
    let file = File::open(path).with_context(cannot)?;
    if let Err(error) = one(file, gather, reading) {
        unread(path, &error, reading);
    }
    Ok(())
}

fn unread(path: &Path, error: &io::Error, reading: &mut Reading) {
    reading.unread += 1;
    if reading.unread_names.len() < MOST_NAMES {
        let told = format!("{}: {error}", path.display());
        reading.unread_names.push(Shown(&told).to_string());
    }
}

/// The plain files below a folder.
fn below(
    folder: &Path,
    depth: u32,
    found: &mut Vec<PathBuf>,
    reading: &mut Reading,
) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let Ok(entry) = entry else {
            reading.unread += 1;
            continue;
        };
        let is_room = (found.len() as u64) < MOST_FILES;
        match entry.file_type() {
            Ok(kind) if kind.is_file() && is_room => found.push(entry.path()),
            Ok(kind) if kind.is_dir() && depth > 0 => {
                if let Err(error) = below(&entry.path(), depth - 1, found, reading) {
                    unread(&entry.path(), &error, reading);
                }
            }
            _ => reading.passed_over += 1,
        }
    }
    Ok(())
}

/// Opens a file that was a plain one a moment ago. Somebody may have put something else in its place: it
/// is opened without following a link or waiting, and looked at again.
fn open_plain(path: &Path) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt;
    /// `O_NOFOLLOW | O_NONBLOCK` (`fcntl.h` on x86-64).
    const NEITHER_FOLLOW_NOR_WAIT: i32 = 0o400_000 | 0o4_000;
    let mut options = File::options();
    let file = options
        .read(true)
        .custom_flags(NEITHER_FOLLOW_NOR_WAIT)
        .open(path)?;
    if file.metadata()?.is_file() {
        Ok(file)
    } else {
        Err(io::Error::other("it is no plain file"))
    }
}

/// Reads one file, whatever it is.
fn one(file: File, gather: &mut Gather, reading: &mut Reading) -> io::Result<()> {
    let mut reader = BufReader::with_capacity(CHUNK, file);
    reading.files += 1;
    if beginning(&mut reader)?.starts_with(&GZIP) {
        let unpacked = MultiGzDecoder::new(reader).take(LARGEST_UNPACKED);
        return records(BufReader::with_capacity(CHUNK, unpacked), gather, reading);
    }
    records(reader, gather, reading)
}

/// The first bytes, which stay to be read.
fn beginning(reader: &mut impl BufRead) -> io::Result<&[u8]> {
    loop {
        match reader.fill_buf() {
            Ok(_) => break,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    reader.fill_buf()
}

fn records(mut reader: impl BufRead, gather: &mut Gather, reading: &mut Reading) -> io::Result<()> {
    let mut start = Vec::new();
    if beginning(&mut reader)?
        .first()
        .is_some_and(|&byte| batch::may_begin(byte))
    {
        reader
            .by_ref()
            .take(batch::LARGEST + 1)
            .read_to_end(&mut start)?;
        if let Some(damaged) = batch::read(&start, gather) {
            reading.damaged += damaged;
            return Ok(());
        }
    }
    // Lines, of which the first may be empty; or a damaged batch, which is no record either way.
    let mut reader = io::Cursor::new(start).chain(reader);
    let mut wrong = |wrong: Wrong| match wrong {
        Wrong::Newer => reading.newer += 1,
        Wrong::Damaged => reading.damaged += 1,
    };
    let ended = lines::read(&mut reader, &mut |line| gather.line(line), &mut wrong)?;
    reading.cut_off += u64::from(ended == Ended::CutOff);
    Ok(())
}
