//! Footprints: the distinct ways in which instructions touch a line (first byte, number of
//! bytes, kind of access). A line has few of them, so counts are kept per footprint and nothing
//! is stored per byte.

use sunder_access::{ByteMask, Kind};

/// Bytes `start..start + len` of a line, accessed in one way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Footprint {
    pub start: u16,
    pub len: u16,
    pub kind: Kind,
}

impl Footprint {
    pub const fn end(self) -> u16 {
        self.start + self.len
    }

    pub const fn overlaps(self, other: Self) -> bool {
        self.start < other.end() && other.start < self.end()
    }

    pub fn mask(self) -> ByteMask {
        ByteMask::range(self.start.into(), self.len.into())
    }
}

/// The footprints of one line. An index stays valid for the line's life.
#[derive(Clone, Debug, Default)]
pub(crate) struct Footprints(Vec<Footprint>);

/// Most footprints of a line: enough for every byte in every kind.
const MAX_FOOTPRINTS: usize = 1024;

impl Footprints {
    /// The index of `wanted`, which is added if it is new. If the line already has
    /// [`MAX_FOOTPRINTS`], the index of the one that starts nearest.
    pub fn intern(&mut self, wanted: Footprint) -> u16 {
        if let Some(i) = self.0.iter().position(|&f| f == wanted) {
            return i as u16;
        }
        if self.0.len() < MAX_FOOTPRINTS {
            self.0.push(wanted);
            return (self.0.len() - 1) as u16;
        }
        let distance = |f: &Footprint| {
            (
                f.kind.writes() != wanted.kind.writes(),
                f.start.abs_diff(wanted.start),
            )
        };
        (0..MAX_FOOTPRINTS)
            .min_by_key(|&i| distance(&self.0[i]))
            .map_or(0, |i| i as u16)
    }

    pub fn get(&self, index: u16) -> Footprint {
        self.0[usize::from(index)]
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The number of its cluster for every footprint. Footprints that overlap, directly or
    /// through others, cannot be moved apart and have the same number. Only those named in
    /// `used` connect clusters.
    pub fn clusters(&self, used: &[u16]) -> Vec<u16> {
        // A table, because `used` has the few footprints many times.
        let mut is_used = vec![false; self.0.len()];
        for &i in used {
            is_used[usize::from(i)] = true;
        }
        let all = 0..self.0.len() as u16;
        let mut sorted: Vec<u16> = all.filter(|&i| is_used[usize::from(i)]).collect();
        sorted.sort_unstable_by_key(|&i| (self.get(i).start, i));
        let mut cluster_of = vec![0u16; self.0.len()];
        let (mut cluster, mut end) = (0, 0);
        for &i in &sorted {
            let f = self.get(i);
            if f.start >= end {
                cluster += 1;
                end = f.end();
            }
            end = end.max(f.end());
            cluster_of[usize::from(i)] = cluster;
        }
        cluster_of
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn footprint(start: u16, len: u16) -> Footprint {
        Footprint {
            start,
            len,
            kind: Kind::Read,
        }
    }

    #[test]
    fn overlapping_footprints_form_one_cluster_through_others() {
        let mut all = Footprints::default();
        for (start, len) in [(0, 8), (16, 8), (4, 16), (24, 8), (20, 1)] {
            all.intern(footprint(start, len));
        }
        // 0..8, 4..20 and 16..24 are connected, and 20..21 lies inside.
        assert_eq!(all.clusters(&[0, 1, 2, 3, 4]), [1, 1, 1, 2, 1]);
        // Without 4..20, which connects them, there are three clusters.
        assert_eq!(all.clusters(&[0, 1, 3]), [1, 2, 0, 3, 0]);
    }

    #[test]
    fn the_same_bytes_in_another_kind_are_another_footprint() {
        let mut all = Footprints::default();
        let a = all.intern(footprint(0, 8));
        let b = all.intern(Footprint {
            kind: Kind::Write,
            ..footprint(0, 8)
        });
        assert_ne!(a, b);
        assert_eq!(all.intern(footprint(0, 8)), a);
    }
}
