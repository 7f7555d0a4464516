//! The records in a ring, one after another: a header with type and size, then the body. The
//! meaning of a body is not known here.

use super::kernel;

/// Bytes of a record's header.
const HEADER: usize = size_of::<kernel::perf_event_header>();

/// A record without its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Record<'a> {
    /// `PERF_RECORD_*`.
    pub kind: u32,
    /// `PERF_RECORD_MISC_*`.
    pub misc: u16,
    /// The bytes after the header.
    pub body: &'a [u8],
}

impl Record<'_> {
    /// Whether it is about user mode.
    pub(crate) const fn is_user(&self) -> bool {
        self.misc as u32 & kernel::PERF_RECORD_MISC_CPUMODE_MASK == kernel::PERF_RECORD_MISC_USER
    }
}

/// The whole records at the front of some bytes.
pub(crate) struct Records<'a>(Fields<'a>);

impl<'a> Records<'a> {
    pub(crate) const fn new(bytes: &'a [u8]) -> Self {
        Self(Fields(bytes))
    }

    /// The bytes that are not read yet. At the end of the iteration, these are no whole record.
    pub(crate) const fn rest(&self) -> &'a [u8] {
        self.0.0
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Record<'a>;

    fn next(&mut self) -> Option<Record<'a>> {
        let mut fields = Fields(self.rest());
        let kind = fields.u32()?;
        let (misc, size) = (fields.u16()?, usize::from(fields.u16()?));
        let body = fields.bytes(size.checked_sub(HEADER)?)?;
        self.0 = fields;
        Some(Record { kind, misc, body })
    }
}

/// Little-endian numbers from the front of a record.
pub(crate) struct Fields<'a>(pub &'a [u8]);

impl<'a> Fields<'a> {
    pub(crate) fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.bytes(8)?.try_into().ok().map(u64::from_le_bytes)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.bytes(4)?.try_into().ok().map(u32::from_le_bytes)
    }

    fn u16(&mut self) -> Option<u16> {
        self.bytes(2)?.try_into().ok().map(u16::from_le_bytes)
    }

    /// Skips `count` elements of `size` bytes.
    pub(super) fn skip(&mut self, count: u64, size: u64) -> Option<()> {
        let bytes = usize::try_from(count.checked_mul(size)?).ok()?;
        self.bytes(bytes).map(drop)
    }
}
