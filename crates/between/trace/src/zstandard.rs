//! Zstandard without the heap: its context is in memory of this crate. The only module that calls
//! the C library of Zstandard.

use core::ptr::{NonNull, null_mut};

/// The compression level. Of data that are hard to predict, level 3 makes blocks 3 to 12 % smaller,
/// and recording takes up to half as long again (`docs/design/trace.md`, "What it costs").
const LEVEL: i32 = 1;

/// Bytes for a context of that level, with some to spare; checked when the context is made.
const MEMORY: usize = 2 << 20;

/// A compressor in place. Zero bytes are a valid value: one without a context. It must not be moved
/// once used, which [`crate::Encoder`] makes sure of.
#[repr(C, align(64))]
pub struct Compressor {
    memory: [u8; MEMORY],
    /// Points into `memory`.
    context: Option<NonNull<zstd_sys::ZSTD_CCtx>>,
    /// The address of `memory` when the context was made.
    made_at: usize,
}

impl Compressor {
    fn context(&mut self) -> Option<NonNull<zstd_sys::ZSTD_CCtx>> {
        let here = self.memory.as_ptr() as usize;
        if self.context.is_none() || self.made_at != here {
            // SAFETY: a function of one integer.
            let needed = unsafe { zstd_sys::ZSTD_estimateCCtxSize(LEVEL) };
            let context = if needed <= MEMORY {
                // SAFETY: the memory is ours, aligned to more than 8 bytes and
                // of this size.
                unsafe { zstd_sys::ZSTD_initStaticCCtx(self.memory.as_mut_ptr().cast(), MEMORY) }
            } else {
                null_mut()
            };
            self.context = NonNull::new(context);
            self.made_at = here;
        }
        self.context
    }

    /// Compresses `from` into the front of `to`; how many bytes, or `None` if it
    /// does not fit.
    pub fn compress(&mut self, from: &[u8], to: &mut [u8]) -> Option<usize> {
        let context = self.context()?;
        // SAFETY: the context was made in memory that has not moved since, and
        // both slices are valid for their lengths.
        let result = unsafe {
            zstd_sys::ZSTD_compressCCtx(
                context.as_ptr(),
                to.as_mut_ptr().cast(),
                to.len(),
                from.as_ptr().cast(),
                from.len(),
                LEVEL,
            )
        };
        // SAFETY: a function of one integer.
        (unsafe { zstd_sys::ZSTD_isError(result) } == 0).then_some(result)
    }
}

/// Compresses `from` on the heap, at the level of recorders; `None` if that fails.
#[cfg(feature = "craft")]
pub fn compress(from: &[u8]) -> Option<Vec<u8>> {
    // SAFETY: a function of one integer.
    let mut to = vec![0; unsafe { zstd_sys::ZSTD_compressBound(from.len()) }];
    // SAFETY: both are valid for their lengths.
    let result = unsafe {
        zstd_sys::ZSTD_compress(
            to.as_mut_ptr().cast(),
            to.len(),
            from.as_ptr().cast(),
            from.len(),
            LEVEL,
        )
    };
    // SAFETY: a function of one integer.
    if unsafe { zstd_sys::ZSTD_isError(result) } != 0 {
        return None;
    }
    to.truncate(result);
    Some(to)
}

/// Unpacks `from`, which must give exactly `bytes` bytes.
pub fn decompress(from: &[u8], bytes: usize) -> Option<Vec<u8>> {
    let mut to = vec![0; bytes];
    // SAFETY: both are valid for their lengths.
    let result = unsafe {
        zstd_sys::ZSTD_decompress(
            to.as_mut_ptr().cast(),
            to.len(),
            from.as_ptr().cast(),
            from.len(),
        )
    };
    (result == bytes).then_some(to)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_compressed_data_is_decompressed() {
        // SAFETY: zeroes are valid, as the type says, and the memory is as `Box` would have
        // allocated it.
        let mut compressor = unsafe { Box::<Compressor>::new_zeroed().assume_init() };
        let data = b"abcabcabcabcabcabcabcabcabcabc".repeat(100);
        let mut out = vec![0; 4096];
        for _ in 0..2 {
            let n = compressor.compress(&data, &mut out).unwrap();
            assert!(n < 100);
            assert_eq!(
                decompress(&out[..n], data.len()).as_deref(),
                Some(&data[..])
            );
            assert_eq!(decompress(&out[..n], data.len() + 1), None);
            assert_eq!(decompress(&out[..n - 1], data.len()), None);
        }
        assert_eq!(compressor.compress(&data, &mut out[..4]), None);
    }
}
