//! The states of a byte as in Plastic's Figure 6 (section 4.3). The states within one stretch
//! of time are found first, and stretches are joined afterwards: a byte that two threads write
//! one after the other has no two simultaneous accessors.

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

/// One byte while the accesses of a stretch are collected: the threads that touched it, by
/// their index in the line, and whether they wrote.
#[derive(Clone, Debug, Default)]
pub(crate) struct ByteWatch(Vec<(u16, bool)>);

impl ByteWatch {
    pub fn touch(&mut self, thread: u16, writes: bool) {
        match self.0.iter_mut().find(|t| t.0 == thread) {
            Some(known) => known.1 |= writes,
            None => self.0.push((thread, writes)),
        }
    }

    /// The byte's state. `together` tells whether two threads may have been there at once.
    pub fn state(&self, together: impl Fn(u16, u16) -> bool) -> ByteState {
        let written = self.0.iter().any(|t| t.1);
        let conflict = |(n, a): (usize, &(u16, bool))| {
            let mut later = self.0[n + 1..].iter();
            later.any(|b| (a.1 || b.1) && together(a.0, b.0))
        };
        match self.0.len() {
            0 => ByteState::Unused,
            _ if self.0.iter().enumerate().any(conflict) => ByteState::WrittenShared,
            _ if written => ByteState::Written,
            1 => ByteState::Read,
            _ => ByteState::ReadShared,
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
            assert_eq!(byte.state(|_, _| true), wanted, "{touches:?}");
        }
    }

    #[test]
    fn threads_that_were_never_present_together_share_no_written_byte() {
        let mut byte = ByteWatch::default();
        byte.touch(0, true);
        byte.touch(1, true);
        assert_eq!(byte.state(|_, _| false), Written);
        byte.touch(2, false);
        let pair = |a, b| (a, b) == (1, 2);
        assert_eq!(byte.state(pair), WrittenShared);
    }
}
