//! Unpacks compressed records only to count what is in them, through a small buffer, before the reader
//! of the format unpacks them into memory. Called by `checks`, with the records in the file's order:
//! together they are one stream.

use super::bounds::Bounds;
use zstd_safe::{DCtx, InBuffer, OutBuffer};

/// Records with Zstandard data: their whole body, or as much of it as its first field says.
pub(super) const COMPRESSED: u32 = 81;
pub(super) const COMPRESSED2: u32 = 83;

/// Bytes that are unpacked at once.
const AT_ONCE: usize = 64 << 10;

/// Bytes of a record's header; its size is in the last two.
const HEADER: usize = 8;

/// The records that are in compressed ones.
pub(super) struct Unpacked {
    context: DCtx<'static>,
    buffer: Vec<u8>,
    /// The beginning of the header of the next record.
    header: [u8; HEADER],
    have: usize,
    /// Bytes of the current record that are still to come.
    left: usize,
}

impl Unpacked {
    pub(super) fn new() -> Self {
        Self {
            context: DCtx::create(),
            buffer: vec![0; AT_ONCE],
            header: [0; HEADER],
            have: 0,
            left: 0,
        }
    }

    /// Counts the records in the body of a compressed record of this kind. The error says what is
    /// wrong.
    pub(super) fn check(
        &mut self,
        kind: u32,
        body: &[u8],
        bounds: &mut Bounds,
    ) -> Result<(), String> {
        let data = match kind {
            COMPRESSED => Some(body),
            _ => body.split_first_chunk().and_then(|(size, rest)| {
                let size = usize::try_from(u64::from_le_bytes(*size)).ok()?;
                rest.get(..size)
            }),
        };
        let data = data.ok_or("a compressed record is shorter than its data")?;
        let mut from = InBuffer::around(data);
        let mut all = 0;
        loop {
            let mut to = OutBuffer::around(&mut self.buffer[..]);
            let unpacked = self.context.decompress_stream(&mut to, &mut from);
            unpacked.map_err(|code| {
                let why = zstd_safe::get_error_name(code);
                format!("a compressed record cannot be unpacked ({why})")
            })?;
            let bytes = to.pos();
            let records = self.count(bytes)?;
            bounds.unpacked(records, bytes as u64)?;
            all += bytes as u64;
            if bytes < self.buffer.len() && from.pos() == data.len() {
                break;
            }
        }
        bounds.piece(all)
    }

    /// How many records begin in the first bytes of the buffer.
    fn count(&mut self, bytes: usize) -> Result<u64, String> {
        let mut records = 0;
        let mut rest = &self.buffer[..bytes];
        while !rest.is_empty() {
            if self.left > 0 {
                let more = self.left.min(rest.len());
                self.left -= more;
                rest = &rest[more..];
                continue;
            }
            let more = (HEADER - self.have).min(rest.len());
            self.header[self.have..self.have + more].copy_from_slice(&rest[..more]);
            self.have += more;
            rest = &rest[more..];
            if self.have == HEADER {
                let size = u16::from_le_bytes([self.header[6], self.header[7]]);
                let body = usize::from(size).checked_sub(HEADER);
                self.left = body.ok_or("a compressed record has one shorter than its header")?;
                self.have = 0;
                records += 1;
            }
        }
        Ok(records)
    }
}
