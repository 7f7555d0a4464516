//! The mappings of the target. Observers learn them from the kernel, and names are looked up in
//! them. Parsing `/proc` is the observers' work, not this crate's.

use crate::address::{Address, Span};
use alloc::collections::BTreeMap;
use alloc::{string::String, vec::Vec};

/// One mapping of the target's address space.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// The addresses it covers.
    pub span: Span,
    /// Offset in the file of its first byte.
    pub file_offset: u64,
    /// The file's path, a kernel name such as `[heap]` or `[stack]`, or empty
    /// for anonymous memory.
    pub path: String,
    /// The file's inode number; 0 for anonymous memory.
    pub inode: u64,
    /// Whether it may be read.
    pub read: bool,
    /// Whether it may be written.
    pub write: bool,
    /// Whether it may be executed.
    pub execute: bool,
    /// Whether it was mapped with `MAP_SHARED`.
    pub shared: bool,
}

/// Whether this path, as the kernel tells it of a mapping, is that of a memory file that Sunder made: a
/// library of ours in the target, or memory that it shares with us.
pub fn is_own_file(path: &str) -> bool {
    path.starts_with("/memfd:sunder-")
}

impl Mapping {
    /// Whether it maps a file (not anonymous memory, not a kernel name).
    pub fn is_file(&self) -> bool {
        self.path.starts_with('/') && self.inode != 0
    }

    /// The offset in the file of `address`, which must lie in the mapping.
    pub const fn file_offset_of(&self, address: Address) -> u64 {
        self.file_offset.wrapping_add(address.0 - self.span.start.0)
    }
}

/// The mappings of one process, ordered by address and without overlaps; by their start, so that
/// any number of them can be added in any order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mappings(BTreeMap<Address, Mapping>);

impl Mappings {
    /// An empty address space.
    pub const fn new() -> Self {
        Self(BTreeMap::new())
    }

    /// Adds `new`. Parts of older mappings that it covers are removed, as `mmap` does with
    /// `MAP_FIXED`.
    pub fn insert(&mut self, new: Mapping) {
        if new.span.len == 0 {
            return;
        }
        self.remove(new.span);
        self.0.insert(new.span.start, new);
    }

    /// Removes everything within `gap`.
    pub fn remove(&mut self, gap: Span) {
        if gap.len == 0 {
            return;
        }
        let before = self.0.range(..gap.start).next_back();
        let before = before.filter(|(_, m)| m.span.end() > gap.start);
        let within = self.0.range(gap.start..gap.end());
        let touched: Vec<Address> = before.into_iter().chain(within).map(|(s, _)| *s).collect();
        for start in touched {
            let Some(mut m) = self.0.remove(&start) else {
                continue;
            };
            if m.span.end() > gap.end() {
                let mut right = m.clone();
                right.span = Span::new(gap.end(), m.span.end().0 - gap.end().0);
                right.file_offset = m.file_offset_of(gap.end());
                self.0.insert(right.span.start, right);
            }
            if m.span.start < gap.start {
                m.span.len = gap.start.0 - m.span.start.0;
                self.0.insert(start, m);
            }
        }
    }

    /// The mapping that holds `address`.
    pub fn at(&self, address: Address) -> Option<&Mapping> {
        let (_, m) = self.0.range(..=address).next_back()?;
        m.span.contains(address).then_some(m)
    }

    /// All mappings, by ascending address.
    pub fn iter(&self) -> impl Iterator<Item = &Mapping> {
        self.0.values()
    }
}

impl FromIterator<Mapping> for Mappings {
    fn from_iter<I: IntoIterator<Item = Mapping>>(iter: I) -> Self {
        let mut all = Self::new();
        for m in iter {
            all.insert(m);
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(start: u64, len: u64, path: &str) -> Mapping {
        Mapping {
            span: Span::new(Address(start), len),
            file_offset: 0x1000,
            path: path.into(),
            inode: 1,
            read: true,
            write: false,
            execute: true,
            shared: false,
        }
    }

    #[test]
    fn a_new_mapping_cuts_the_old_one_in_two() {
        let mut all: Mappings = [map(0x10000, 0x3000, "/a")].into_iter().collect();
        all.insert(map(0x11000, 0x1000, "/b"));
        let seen: Vec<_> = all
            .iter()
            .map(|m| (m.span.start.0, m.span.len, m.file_offset, m.path.as_str()))
            .collect();
        assert_eq!(
            seen,
            [
                (0x10000, 0x1000, 0x1000, "/a"),
                (0x11000, 0x1000, 0x1000, "/b"),
                (0x12000, 0x1000, 0x3000, "/a"),
            ]
        );
        assert_eq!(
            all.at(Address(0x12fff)).map(|m| m.path.as_str()),
            Some("/a")
        );
        assert!(all.at(Address(0x13000)).is_none());
    }

    /// A recording may have many mappings, by descending address too. This takes a tenth of a second,
    /// and with a list that is moved for each of them a minute.
    #[test]
    fn many_mappings_are_added_in_any_order() {
        let mut all = Mappings::new();
        for n in (1..=200_000).rev() {
            all.insert(map(n * 0x2000, 0x1000, ""));
        }
        assert_eq!(all.iter().count(), 200_000);
        all.insert(map(0x2800, 200_000 * 0x2000, ""));
        let spans = all.iter().map(|m| (m.span.start.0, m.span.len));
        assert!(spans.eq([(0x2000, 0x800), (0x2800, 200_000 * 0x2000)]));
    }

    #[test]
    fn the_offset_in_a_file_may_be_any_number() {
        let last = Mapping {
            file_offset: u64::MAX,
            ..map(0x10000, 0x3000, "/a")
        };
        let mut all: Mappings = [last].into_iter().collect();
        all.remove(Span::new(Address(0x11000), 0x1000));
        assert_eq!(all.iter().count(), 2);
    }

    #[test]
    fn removing_nothing_changes_nothing() {
        let mut all: Mappings = [map(0x10000, 0x1000, "/a")].into_iter().collect();
        let before = all.clone();
        all.remove(Span::new(Address(0x11000), 0x1000));
        all.remove(Span::new(Address(0x10000), 0));
        assert_eq!(all, before);
    }
}
