//! The states of Plastic's Figure 6 (section 4.3), one a byte. What one stretch
//! of time shows is found first, and stretches are joined afterwards: a byte
//! that two threads write one after the other has no two simultaneous accessors.

/// How a byte is shared, in ascending order of trouble.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ByteState {
    /// No thread touched it while the line was contended.
    #[default]
    Unused,
    /// R: read by one thread.
    Read,
    /// RS: read by several threads.
    ReadShared,
    /// RW: one thread writes it (and may read it); nobody else touches it.
    Written,
    /// RWS: written by at least one thread and touched by another.
    WrittenShared,
}

impl ByteState {
    /// Plastic's letters; a dash for an unused byte.
    pub const fn letters(self) -> &'static str {
        match self {
            Self::Unused => "-",
            Self::Read => "R",
            Self::ReadShared => "RS",
            Self::Written => "RW",
            Self::WrittenShared => "RWS",
        }
    }

    /// Whether a write was seen.
    pub const fn is_written(self) -> bool {
        matches!(self, Self::Written | Self::WrittenShared)
    }
}

/// A byte while the accesses of one stretch are counted.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ByteWatch {
    /// The first thread seen, by its number in the line plus one.
    first: u16,
    several: bool,
    written: bool,
}

impl ByteWatch {
    pub fn touch(&mut self, thread: u16, writes: bool) {
        if self.first == 0 {
            self.first = thread + 1;
        }
        self.several |= self.first != thread + 1;
        self.written |= writes;
    }

    pub const fn state(self) -> ByteState {
        match (self.first, self.several, self.written) {
            (0, _, _) => ByteState::Unused,
            (_, false, false) => ByteState::Read,
            (_, true, false) => ByteState::ReadShared,
            (_, false, true) => ByteState::Written,
            (_, true, true) => ByteState::WrittenShared,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ByteState::{Read, ReadShared, Unused, Written, WrittenShared};

    #[test]
    fn every_sequence_of_figure_6_ends_in_its_state() {
        let table: [(&[(u16, bool)], ByteState); 11] = [
            (&[], Unused),
            (&[(0, false)], Read),
            (&[(0, false), (0, false)], Read),
            (&[(0, false), (1, false)], ReadShared),
            (&[(0, false), (1, false), (2, false)], ReadShared),
            (&[(0, true)], Written),
            (&[(0, false), (0, true)], Written),
            (&[(0, true), (0, false)], Written),
            (&[(0, true), (1, false)], WrittenShared),
            (&[(0, false), (1, true)], WrittenShared),
            (&[(0, true), (1, true)], WrittenShared),
        ];
        for (touches, wanted) in table {
            let mut byte = ByteWatch::default();
            for &(thread, writes) in touches {
                byte.touch(thread, writes);
            }
            assert_eq!(byte.state(), wanted, "{touches:?}");
        }
    }
}
