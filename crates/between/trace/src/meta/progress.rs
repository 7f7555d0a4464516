//! The progress record at the start of a trace. Written by the recorder again and again, and by the
//! process that waits for the recorded one.

use crate::block::checksum;
use crate::fields::{Fields, Parse};
use crate::{MAGIC, VERSION};

/// Bytes before the first block: magic, version, progress.
pub const PREFIX_BYTES: usize = 128;

/// The progress of a recording, at the start of the file. The recorder overwrites it during the
/// recording, so that a recording that ends badly tells the reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Whether and how the recording ended.
    pub state: State,
    /// The reason: for [`State::Failed`] and [`State::WentOn`] the system's error number, for
    /// [`State::Died`] the signal's number.
    pub errno: u32,
    /// Bytes of the file that are written or reserved.
    pub bytes: u64,
    /// Accesses in written blocks.
    pub accesses: u64,
    /// Other events in written blocks.
    pub others: u64,
    /// Threads so far.
    pub threads: u32,
    /// How many events could not be recorded.
    pub lost: u64,
}

/// See [`Progress::state`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum State {
    /// The recording goes on, or was cut off because the program was killed.
    #[default]
    Recording,
    /// Everything was written.
    Complete,
    /// The file could not be written any more; the program went on.
    Failed,
    /// The program was killed by a signal, or (0) ended without calling the C library's exit. The
    /// process that waited for it notes this; see [`note_death`].
    Died,
    /// The recording ended because the program was about to execute another one. That failed, and
    /// the program went on.
    WentOn,
}

impl Progress {
    /// The first bytes of the file.
    pub fn prefix(&self) -> [u8; PREFIX_BYTES] {
        let mut bytes = [0; PREFIX_BYTES];
        let mut fields = Fields::new(&mut bytes);
        fields.u64(u64::from_le_bytes(MAGIC));
        fields.u32(VERSION);
        fields.u32(0);
        fields.u32(match self.state {
            State::Recording => 1,
            State::Complete => 2,
            State::Failed => 3,
            State::Died => 4,
            State::WentOn => 5,
        });
        fields.u32(self.errno);
        fields.u64(self.bytes);
        fields.u64(self.accesses);
        fields.u64(self.others);
        fields.u32(self.threads);
        fields.u32(0);
        fields.u64(self.lost);
        let sum = checksum(&bytes[16..PREFIX_BYTES - 8]);
        bytes[PREFIX_BYTES - 8..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// The progress in the first bytes of a file; `None` if it is damaged. Does not check magic and
    /// version.
    pub fn from_prefix(prefix: &[u8; PREFIX_BYTES]) -> Option<Self> {
        let sum = Parse(&prefix[PREFIX_BYTES - 8..]).u64()?;
        if sum != checksum(&prefix[16..PREFIX_BYTES - 8]) {
            return None;
        }
        let mut fields = Parse(&prefix[16..]);
        let state = match fields.u32()? {
            1 => State::Recording,
            2 => State::Complete,
            3 => State::Failed,
            4 => State::Died,
            5 => State::WentOn,
            _ => return None,
        };
        let errno = fields.u32()?;
        let (bytes, accesses, others) = (fields.u64()?, fields.u64()?, fields.u64()?);
        let threads = fields.u32()?;
        fields.u32()?;
        Some(Self {
            state,
            errno,
            bytes,
            accesses,
            others,
            threads,
            lost: fields.u64()?,
        })
    }
}

/// Notes in the file of a recording that goes on, according to its progress, why it ended: its
/// process was killed by `signal`, or (0) ended by itself. Returns whether it was noted.
///
/// # Errors
/// If the file can't be read or written.
pub fn note_death(file: &std::fs::File, signal: u32) -> std::io::Result<bool> {
    use std::os::unix::fs::FileExt;
    let mut prefix = [0; PREFIX_BYTES];
    file.read_exact_at(&mut prefix, 0)?;
    let known = Progress::from_prefix(&prefix);
    let Some(progress) =
        known.filter(|p| prefix.starts_with(&MAGIC) && p.state == State::Recording)
    else {
        return Ok(false);
    };
    let now = Progress {
        state: State::Died,
        errno: signal,
        ..progress
    };
    file.write_all_at(&now.prefix(), 0)?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_read_back_and_damage_is_detected() {
        let progress = Progress {
            state: State::Failed,
            errno: 28,
            bytes: 1,
            accesses: 2,
            others: 3,
            threads: 4,
            lost: 5,
        };
        let prefix = progress.prefix();
        assert_eq!(Progress::from_prefix(&prefix), Some(progress));
        let mut damaged = prefix;
        damaged[40] ^= 1;
        assert_eq!(Progress::from_prefix(&damaged), None);
    }
}
