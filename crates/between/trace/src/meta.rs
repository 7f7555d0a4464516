//! A trace's data about itself: the progress record at its start, and the payloads of its header,
//! stacks, modules and end blocks.

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

/// How a trace was recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Via {
    /// By hooks that a compiler inserted.
    Instrumented,
    /// By an emulator's plugin.
    Emulated,
    /// Made by hand or by a test.
    Other,
}

impl Via {
    const fn code(self) -> u32 {
        match self {
            Self::Other => 0,
            Self::Instrumented => 1,
            Self::Emulated => 2,
        }
    }

    /// The name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Other => "other",
            Self::Instrumented => "instrumented",
            Self::Emulated => "emulated",
        }
    }
}

/// The clock of a trace's ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    /// Nanoseconds of `CLOCK_MONOTONIC`.
    Monotonic,
    /// The processor's time-stamp counter.
    Tsc,
}

/// The recorded program, time and machine, borrowed by the recorder.
#[derive(Clone, Copy, Debug)]
pub struct HeaderParts<'a> {
    /// The kind of recording.
    pub via: Via,
    /// The clock of the ticks.
    pub clock: Clock,
    /// Size of the machine's cache line in bytes; 0: unknown.
    pub line_size: u32,
    /// The process.
    pub process: u32,
    /// Ticks at the start.
    pub ticks: u64,
    /// `CLOCK_MONOTONIC` at the start, nanoseconds.
    pub monotonic: u64,
    /// Nanoseconds since 1970 at the start.
    pub realtime: u64,
    /// The program's file.
    pub program: &'a [u8],
    /// Its arguments, the name first, each with a zero byte after it.
    pub arguments: &'a [u8],
}

impl HeaderParts<'_> {
    /// Writes the payload into `to`; how many bytes, or `None` if it is too
    /// long.
    pub fn write(&self, to: &mut [u8]) -> Option<usize> {
        let mut fields = Fields::new(to);
        fields.u32(self.via.code());
        fields.u32(match self.clock {
            Clock::Monotonic => 0,
            Clock::Tsc => 1,
        });
        fields.u32(self.line_size);
        fields.u32(self.process);
        for number in [self.ticks, self.monotonic, self.realtime] {
            fields.u64(number);
        }
        fields.bytes(self.program);
        fields.bytes(self.arguments);
        fields.written().map(<[u8]>::len)
    }
}

/// The recorded program, time and machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// The kind of recording.
    pub via: Via,
    /// The clock of the ticks.
    pub clock: Clock,
    /// Size of the machine's cache line in bytes; 0: unknown.
    pub line_size: u32,
    /// The process.
    pub process: u32,
    /// Ticks at the start.
    pub ticks: u64,
    /// `CLOCK_MONOTONIC` at the start, nanoseconds.
    pub monotonic: u64,
    /// Nanoseconds since 1970 at the start.
    pub realtime: u64,
    /// The program's file.
    pub program: String,
    /// Its arguments, the name first.
    pub arguments: Vec<String>,
}

impl Header {
    pub(crate) fn parse(payload: &[u8]) -> Option<Self> {
        let mut fields = Parse(payload);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Some(Self {
            via: match fields.u32()? {
                1 => Via::Instrumented,
                2 => Via::Emulated,
                _ => Via::Other,
            },
            clock: match fields.u32()? {
                0 => Clock::Monotonic,
                1 => Clock::Tsc,
                _ => return None,
            },
            line_size: fields.u32()?,
            process: fields.u32()?,
            ticks: fields.u64()?,
            monotonic: fields.u64()?,
            realtime: fields.u64()?,
            program: text(fields.bytes()?),
            arguments: {
                let all = fields.bytes()?;
                let all = all.strip_suffix(&[0]).unwrap_or(all);
                all.split(|&b| b == 0).map(text).collect()
            },
        })
    }
}

/// A part of a loaded file's address range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// The first address.
    pub start: u64,
    /// Bytes in memory.
    pub bytes: u64,
    /// Offset in the file.
    pub file_offset: u64,
    /// Permissions as in ELF: 1 execute, 2 write, 4 read.
    pub flags: u32,
}

/// A loaded file, borrowed by the recorder.
#[derive(Clone, Copy, Debug)]
pub struct ModuleParts<'a> {
    /// The bias that is added to the file's addresses.
    pub base: u64,
    /// The path of the file.
    pub path: &'a [u8],
    /// Its build ID; empty if there is none.
    pub build_id: &'a [u8],
}

/// Writes the modules of one block: each is begun, gets its segments, and ends when the next is
/// begun or the block is done.
#[derive(Debug)]
pub struct ModuleWriter<'a> {
    fields: Fields<'a>,
    whole: usize,
    count: u32,
}

impl<'a> ModuleWriter<'a> {
    /// Writes into `to`.
    pub const fn new(to: &'a mut [u8]) -> Self {
        Self {
            fields: Fields::new(to),
            whole: 0,
            count: 0,
        }
    }

    /// Adds a module; false if there is no room, and then it is left out.
    pub fn add(
        &mut self,
        module: &ModuleParts<'_>,
        segments: impl Iterator<Item = Segment> + Clone,
    ) -> bool {
        self.fields.u64(module.base);
        self.fields.bytes(module.path);
        self.fields.bytes(module.build_id);
        self.fields.u32(segments.clone().count() as u32);
        for segment in segments {
            self.fields.u64(segment.start);
            self.fields.u64(segment.bytes);
            self.fields.u64(segment.file_offset);
            self.fields.u32(segment.flags);
        }
        if self.fields.fits() {
            self.whole = self.fields.len();
            self.count += 1;
        }
        self.fields.fits()
    }

    /// How many bytes and modules were written.
    pub const fn done(&self) -> (usize, u32) {
        (self.whole, self.count)
    }
}

/// A loaded file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Module {
    /// The bias that is added to the file's addresses.
    pub base: u64,
    /// The path of the file.
    pub path: String,
    /// Its build ID; empty if there is none.
    pub build_id: Vec<u8>,
    /// Its loaded parts.
    pub segments: Vec<Segment>,
}

impl Module {
    pub(crate) fn parse_all(payload: &[u8], count: u32) -> Option<Vec<Self>> {
        let mut fields = Parse(payload);
        let mut all = Vec::new();
        for _ in 0..count {
            let mut module = Self {
                base: fields.u64()?,
                path: String::from_utf8_lossy(fields.bytes()?).into_owned(),
                build_id: fields.bytes()?.to_vec(),
                segments: Vec::new(),
            };
            for _ in 0..fields.u32()? {
                module.segments.push(Segment {
                    start: fields.u64()?,
                    bytes: fields.u64()?,
                    file_offset: fields.u64()?,
                    flags: fields.u32()?,
                });
            }
            all.push(module);
        }
        Some(all)
    }
}

/// Writes a call stack to the front of `to`: its number and its return addresses, the
/// innermost first. How many bytes that took; `None` if there is no room.
pub fn write_stack(to: &mut [u8], id: u32, frames: &[u64]) -> Option<usize> {
    let mut fields = Fields::new(to);
    fields.u32(id);
    fields.u32(frames.len() as u32);
    for &frame in frames {
        fields.u64(frame);
    }
    fields.written().map(<[u8]>::len)
}

/// The stacks of a block.
pub(crate) fn parse_stacks(payload: &[u8], count: u32) -> Option<Vec<(u32, Vec<u64>)>> {
    let mut fields = Parse(payload);
    let mut all = Vec::new();
    for _ in 0..count {
        let id = fields.u32()?;
        let mut frames = Vec::new();
        for _ in 0..fields.u32()? {
            frames.push(fields.u64()?);
        }
        all.push((id, frames));
    }
    Some(all)
}

/// Why a recording ended as it should.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// The program ended.
    Exit,
    /// The program executed another one.
    Exec,
    /// The recorder was told to stop.
    Stopped,
    /// The program aborted.
    Abort,
}

/// The record that ends a complete trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    /// The reason.
    pub reason: Reason,
    /// How many threads were recorded.
    pub threads: u32,
    /// How many blocks of events were written.
    pub blocks: u64,
    /// How many accesses were recorded.
    pub accesses: u64,
    /// How many other events were recorded.
    pub others: u64,
    /// How many events could not be recorded.
    pub lost: u64,
    /// Ticks at the end.
    pub ticks: u64,
    /// `CLOCK_MONOTONIC` at the end, nanoseconds.
    pub monotonic: u64,
}

impl End {
    /// Bytes of the payload.
    pub const BYTES: usize = 56;

    /// The payload.
    pub fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        let mut fields = Fields::new(&mut bytes);
        fields.u32(match self.reason {
            Reason::Exit => 1,
            Reason::Exec => 2,
            Reason::Stopped => 3,
            Reason::Abort => 4,
        });
        fields.u32(self.threads);
        for number in [
            self.blocks,
            self.accesses,
            self.others,
            self.lost,
            self.ticks,
            self.monotonic,
        ] {
            fields.u64(number);
        }
        bytes
    }

    pub(crate) fn parse(payload: &[u8]) -> Option<Self> {
        let mut fields = Parse(payload);
        Some(Self {
            reason: match fields.u32()? {
                1 => Reason::Exit,
                2 => Reason::Exec,
                3 => Reason::Stopped,
                4 => Reason::Abort,
                _ => return None,
            },
            threads: fields.u32()?,
            blocks: fields.u64()?,
            accesses: fields.u64()?,
            others: fields.u64()?,
            lost: fields.u64()?,
            ticks: fields.u64()?,
            monotonic: fields.u64()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_comes_back_and_damage_to_it_is_seen() {
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

    #[test]
    fn a_module_that_does_not_fit_is_left_out_whole() {
        let mut memory = [0; 150];
        let mut writer = ModuleWriter::new(&mut memory);
        let segment = Segment {
            start: 0x1000,
            bytes: 16,
            file_offset: 0,
            flags: 5,
        };
        let parts = ModuleParts {
            base: 0x1000,
            path: b"/bin/true",
            build_id: &[1, 2, 3],
        };
        assert!(writer.add(&parts, [segment].into_iter()));
        assert!(!writer.add(&parts, [segment; 3].into_iter()));
        let (bytes, count) = writer.done();
        let modules = Module::parse_all(&memory[..bytes], count).unwrap();
        assert_eq!(modules.len(), 1);
        assert_eq!(modules[0].segments, [segment]);
        assert_eq!(modules[0].path, "/bin/true");
    }
}
