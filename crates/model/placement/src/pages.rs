//! The price in pages of separating objects: equations (1) to (5) of the paper (section 4.3).
//! Uses only `core`.

/// Pages for `bytes` bytes: the ceiling of equations (2) and (4).
pub const fn pages_for(bytes: u64, page: u64) -> u64 {
    bytes.div_ceil(page)
}

/// The space of one stream of requests S (equation 1), with and without
/// buckets (equation 3). Filled bucket by bucket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pages {
    /// Unique buckets, |BS|.
    pub buckets: u64,
    /// Requested bytes, the sum of all s_i.
    pub bytes: u64,
    /// Pages with buckets, equation (4).
    pub with_buckets: u64,
    /// Bytes of a page.
    pub page: u64,
}

impl Pages {
    /// No requests.
    pub const fn new(page: u64) -> Self {
        Self {
            buckets: 0,
            bytes: 0,
            with_buckets: 0,
            page,
        }
    }

    /// Adds a bucket with the sum of its requests: in equation (4), the number
    /// of its allocations times their average size.
    #[must_use]
    pub const fn bucket(self, bytes: u64) -> Self {
        Self {
            buckets: self.buckets + 1,
            bytes: self.bytes.saturating_add(bytes),
            with_buckets: self
                .with_buckets
                .saturating_add(pages_for(bytes, self.page)),
            page: self.page,
        }
    }

    /// Pages of the general allocator, equation (2).
    pub const fn general(&self) -> u64 {
        pages_for(self.bytes, self.page)
    }

    /// Additional pages, the left side of equation (5): never more than there
    /// are buckets.
    pub const fn additional(&self) -> u64 {
        self.with_buckets.saturating_sub(self.general())
    }

    /// Additional pages in percent of the general allocator's, as Table 3 has
    /// it; 0 if nothing was asked for.
    pub fn overhead_percent(&self) -> f64 {
        match self.general() {
            0 => 0.0,
            general => self.additional() as f64 * 100.0 / general as f64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equations_two_and_four_differ_in_the_ceilings() {
        // 3 buckets of 1.5, 0.25 and 2.25 pages: 2 + 1 + 3 against 4 pages.
        let pages = [6144, 1024, 9216]
            .into_iter()
            .fold(Pages::new(4096), Pages::bucket);
        assert_eq!((pages.general(), pages.with_buckets), (4, 6));
        assert_eq!(pages.additional(), 2);
        assert!(pages.additional() <= pages.buckets);
        assert!((pages.overhead_percent() - 50.0).abs() < 1e-9);
    }

    /// Table 3: cholesky needs 738 pages; 21 more are 2.85 %.
    #[test]
    fn overhead_is_counted_as_in_table_3() {
        let pages = Pages {
            buckets: 21,
            bytes: 738 * 4096,
            with_buckets: 759,
            page: 4096,
        };
        assert_eq!((pages.overhead_percent() * 100.0).round(), 285.0);
    }
}
