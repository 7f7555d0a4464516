//! The bytes for the reader of the format.

use std::fs::File;
use std::io::{self, BufReader, Cursor, Read, Seek, SeekFrom};

/// Bytes of the header of a file.
pub(super) const FILE_HEADER: usize = 104;

/// The bytes for the reader of the format.
pub(super) enum Source {
    /// The file, with a changed header.
    File {
        header: [u8; FILE_HEADER],
        position: u64,
        file: BufReader<File>,
    },
    /// A recording that was written to a pipe, without the parts that are not needed.
    Pipe(Cursor<Vec<u8>>),
}

impl Read for Source {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Pipe(bytes) => bytes.read(into),
            Self::File {
                header,
                position,
                file,
            } => {
                let hidden = header.get(*position as usize..).unwrap_or_default();
                let read = if hidden.is_empty() {
                    file.read(into)?
                } else {
                    let read = hidden.len().min(into.len());
                    into[..read].copy_from_slice(&hidden[..read]);
                    file.seek_relative(read as i64)?;
                    read
                };
                *position += read as u64;
                Ok(read)
            }
        }
    }
}

impl Seek for Source {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        match self {
            Self::Pipe(bytes) => bytes.seek(to),
            Self::File { position, file, .. } => {
                *position = file.seek(to)?;
                Ok(*position)
            }
        }
    }
}
