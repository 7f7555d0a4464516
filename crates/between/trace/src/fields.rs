//! Small payloads field by field: little-endian numbers, and byte strings after a 32-bit length.
//! Writing needs no heap; reading trusts nothing.

/// Writes fields into memory of fixed size.
#[derive(Debug)]
pub struct Fields<'a> {
    to: &'a mut [u8],
    len: usize,
    overflow: bool,
}

impl<'a> Fields<'a> {
    /// Writes from the front of `to`.
    pub const fn new(to: &'a mut [u8]) -> Self {
        Self {
            to,
            len: 0,
            overflow: false,
        }
    }

    fn put(&mut self, bytes: &[u8]) {
        match self.to.get_mut(self.len..self.len + bytes.len()) {
            Some(place) => {
                place.copy_from_slice(bytes);
                self.len += bytes.len();
            }
            None => self.overflow = true,
        }
    }

    /// Appends 32 bits.
    pub fn u32(&mut self, value: u32) {
        self.put(&value.to_le_bytes());
    }

    /// Appends 64 bits.
    pub fn u64(&mut self, value: u64) {
        self.put(&value.to_le_bytes());
    }

    /// Appends a byte string.
    pub fn bytes(&mut self, value: &[u8]) {
        self.u32(value.len() as u32);
        self.put(value);
    }

    /// How many bytes were written so far.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether everything fitted so far.
    pub const fn fits(&self) -> bool {
        !self.overflow
    }

    /// The written bytes; `None` if not all fields fitted.
    pub fn written(&self) -> Option<&[u8]> {
        self.to.get(..self.len).filter(|_| !self.overflow)
    }
}

/// Reads fields from the front.
#[derive(Clone, Copy, Debug)]
pub struct Parse<'a>(pub &'a [u8]);

impl<'a> Parse<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (front, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(front)
    }

    /// The next 32 bits.
    pub fn u32(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.take(4)?.try_into().ok()?))
    }

    /// The next 64 bits.
    pub fn u64(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.take(8)?.try_into().ok()?))
    }

    /// The next byte string.
    pub fn bytes(&mut self) -> Option<&'a [u8]> {
        let count = self.u32()?;
        self.take(count as usize)
    }
}
