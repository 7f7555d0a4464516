//! The payload of the header block: which program was recorded, how, when and on which machine.

use crate::fields::{Fields, Parse};

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
