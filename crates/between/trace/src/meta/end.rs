//! The payload of the end block: the totals of a complete trace.

use crate::fields::{Fields, Parse};

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
