//! How a trace is cut: which bucket a line belongs to, and how the bucket's folder is called. The
//! exporter and the reader must agree, so both ask here.

use std::path::Path;

/// The most buckets: each has a file that is open while the trace is written.
pub const MAX_BUCKETS: u32 = 512;

/// No row reaches over a multiple of this many bytes, however large the lines are. A row names the heap
/// block at its first byte; so a replay with pages smaller than the lines of the cut also knows the
/// block at the first byte on each page.
pub const PIECE: u64 = 512;

/// 2^64 divided by the golden ratio (Knuth, volume 3, section 6.4).
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// A cut of memory into lines, and of the lines into buckets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    bits: u32,
    buckets: u32,
}

impl Cut {
    /// Lines of `granule` bytes, a power of two from 8 to 1 MiB, in `buckets` buckets; `None` if
    /// there is no such cut.
    pub fn new(granule: u64, buckets: u32) -> Option<Self> {
        let possible = granule.is_power_of_two()
            && (8..=1 << 20).contains(&granule)
            && (1..=MAX_BUCKETS).contains(&buckets);
        possible.then(|| Self {
            bits: granule.trailing_zeros(),
            buckets,
        })
    }

    /// Bytes of a line.
    pub const fn granule(self) -> u64 {
        1 << self.bits
    }

    /// The number of buckets.
    pub const fn buckets(self) -> u32 {
        self.buckets
    }

    /// The bucket of the line that holds `address`.
    #[inline]
    pub const fn bucket(self, address: u64) -> u32 {
        let hash = (address >> self.bits).wrapping_mul(GOLDEN) >> 32;
        ((hash * self.buckets as u64) >> 32) as u32
    }

    /// How many of the `width` bytes from `address` on are in one row: those in its line, if that is no
    /// larger than [`PIECE`], else those in its piece.
    #[inline]
    pub const fn in_row(self, address: u64, width: u32) -> u32 {
        let granule = self.granule();
        let piece = if granule < PIECE { granule } else { PIECE };
        let left = piece - (address & (piece - 1));
        if (width as u64) < left {
            width
        } else {
            left as u32
        }
    }
}

/// The name of the folder of bucket `number`.
pub(crate) fn folder(number: u32) -> String {
    format!("bucket={number:02}")
}

/// The number of the bucket whose folder this is; `None` if it is none.
pub fn bucket_of_folder(path: &Path) -> Option<u32> {
    let name = path.file_name()?.to_str()?;
    name.strip_prefix("bucket=")?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbouring_lines_are_spread_and_bytes_of_a_line_stay_together() {
        let cut = Cut::new(64, 7).expect("a cut");
        let mut lines = [0; 7];
        for line in 0..7000u64 {
            let bucket = cut.bucket(line * 64);
            assert_eq!(bucket, cut.bucket(line * 64 + 63));
            lines[bucket as usize] += 1;
        }
        assert!(lines.iter().all(|&n| (900..1100).contains(&n)), "{lines:?}");
    }

    #[test]
    fn an_access_is_cut_where_its_line_ends() {
        let cut = Cut::new(64, 2).expect("a cut");
        assert_eq!(cut.in_row(60, 8), 4);
        assert_eq!(cut.in_row(56, 8), 8);
        assert_eq!(cut.in_row(64, 64), 64);
        assert_eq!(cut.in_row(u64::MAX - 3, 8), 4);
        let pages = Cut::new(4096, 2).expect("a cut");
        assert_eq!((pages.in_row(60, 8), pages.in_row(508, 8)), (8, 4));
    }

    #[test]
    fn impossible_cuts_are_refused() {
        for (granule, buckets) in [(48, 4), (4, 4), (64, 0), (64, 513), (1 << 21, 4)] {
            assert_eq!(Cut::new(granule, buckets), None);
        }
    }

    #[test]
    fn a_folder_tells_its_bucket() {
        assert_eq!(bucket_of_folder(Path::new("/x/bucket=07")), Some(7));
        assert_eq!(bucket_of_folder(Path::new("/x/bucket=7/")), Some(7));
        assert_eq!(bucket_of_folder(Path::new("/x/threads.parquet")), None);
        assert_eq!(folder(7), "bucket=07");
        assert_eq!(folder(123), "bucket=123");
    }
}
