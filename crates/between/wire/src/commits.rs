//! The log of what isolated threads do: which bytes their commits changed, when they got private
//! pages, and when their episodes began and ended. It is part of the control file
//! ([`crate::isolation::Control`]); all zeroes are a valid, empty state. Workers add records in
//! their signal handlers, and the tool takes them. So nothing here allocates, waits or makes system
//! calls. A record that finds the ring full is counted and dropped.

use crate::ring::{Ring, Space, space_words};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// The most records that wait for the tool to take them.
pub const RECORDS: u64 = 1 << 16;
/// Words of a record.
pub const RECORD_WORDS: usize = 8;

/// The kinds of records. The numbers are also those of `include/sunder.h`.
pub mod kind {
    /// A commit wrote bytes of a line that the thread had changed.
    pub const CHANGE: u32 = 1;
    /// A thread's episode begins.
    pub const BEGIN: u32 = 2;
    /// A thread's episode ends, with everything committed. `detail` is one of
    /// [`crate::isolation::why`].
    pub const END: u32 = 3;
    /// The thread has a private copy of a page from here on, until its episode ends.
    pub const PRIVATE: u32 = 4;
    /// The page is shared again by all threads. `detail` is one of [`super::shared`].
    pub const SHARED: u32 = 5;
    /// The thread's first write to a page whose writers are looked for.
    pub const WRITE: u32 = 6;
}

/// Why a page is shared again; 0 if this thread has not seen why.
pub mod shared {
    /// Bytes beside those that are to be isolated have changed on it.
    pub const OTHER_BYTES: u32 = 1;
    /// Two threads changed the same bytes.
    pub const SAME_BYTES: u32 = 2;
    /// A thread got on only when it saw what others had written there.
    pub const AWAITED: u32 = 3;
    /// Private copies of it cost too much.
    pub const COSTLY: u32 = 4;
}

/// What an isolated thread did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// One of [`kind`].
    pub kind: u32,
    /// See [`kind`]. For a change whose `instruction` is known: the offset in the line of the byte
    /// that it wrote.
    pub detail: u32,
    /// The thread.
    pub thread: u32,
    /// When it happened (monotonic clock, ns).
    pub time: u64,
    /// Of a change: when the thread committed before, or when its episode began. The bytes were
    /// written after that.
    pub since: u64,
    /// Of a change, the address of the line; of a page, its address; of a write, that of the byte.
    pub address: u64,
    /// Of a change: a bit for each byte of the line that the thread has changed, the lowest for the
    /// first.
    pub bytes: u64,
    /// The bytes among these that others changed too, after `since`.
    pub both: u64,
    /// The instruction that wrote, where known; else 0.
    pub instruction: u64,
}

impl Record {
    const fn words(&self) -> [u64; RECORD_WORDS] {
        [
            self.kind as u64 | (self.detail as u64) << 32,
            self.thread as u64,
            self.time,
            self.since,
            self.address,
            self.bytes,
            self.both,
            self.instruction,
        ]
    }

    const fn from_words(words: [u64; RECORD_WORDS]) -> Self {
        let [head, thread, time, since, address, bytes, both, instruction] = words;
        Self {
            kind: head as u32,
            detail: (head >> 32) as u32,
            thread: thread as u32,
            time,
            since,
            address,
            bytes,
            both,
            instruction,
        }
    }
}

/// The log in the control file.
#[derive(Debug)]
#[repr(C)]
pub struct Commits {
    /// Not 0 if all kinds of records are wanted; otherwise only changes are added. Written before
    /// the program starts.
    pub all: AtomicU32,
    /// The number of records for which there was no room.
    pub lost: AtomicU64,
    ring: Space<{ space_words(RECORDS, RECORD_WORDS) }>,
}

impl Commits {
    const fn ring(&self) -> Ring<'_, RECORD_WORDS> {
        self.ring.ring(RECORDS)
    }

    /// Adds a record, if its kind is wanted and there is room.
    pub fn add(&self, record: &Record) {
        let wanted = record.kind == kind::CHANGE || self.all.load(Relaxed) != 0;
        if wanted && !self.ring().push(&record.words()) {
            self.lost.fetch_add(1, Relaxed);
        }
    }

    /// Takes the oldest record. Only one consumer may call this.
    pub fn take(&self) -> Option<Record> {
        self.ring().pop().map(Record::from_words)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn empty() -> Box<Commits> {
        let layout = std::alloc::Layout::new::<Commits>();
        // SAFETY: all fields are atomics, for which zeroes are valid, and the box frees with
        // the layout that the same allocator was given.
        unsafe { Box::from_raw(std::alloc::alloc_zeroed(layout).cast()) }
    }

    fn numbered(n: u64) -> Record {
        Record {
            kind: kind::CHANGE,
            detail: 1,
            thread: 2,
            time: n,
            since: 3,
            address: 4,
            bytes: u64::MAX,
            both: 5,
            instruction: 6,
        }
    }

    #[test]
    fn records_are_taken_in_the_order_of_adding_and_those_without_room_are_counted() {
        let commits = empty();
        assert_eq!(commits.take(), None);
        for n in 0..RECORDS + 3 {
            commits.add(&numbered(n));
        }
        assert_eq!(commits.lost.load(Relaxed), 3);
        for n in 0..RECORDS {
            assert_eq!(commits.take(), Some(numbered(n)));
        }
        assert_eq!(commits.take(), None);
    }

    #[test]
    fn records_that_are_not_changes_must_be_asked_for() {
        let commits = empty();
        let begin = Record {
            kind: kind::BEGIN,
            ..numbered(0)
        };
        commits.add(&begin);
        assert_eq!(commits.take(), None);
        commits.all.store(1, Relaxed);
        commits.add(&begin);
        assert_eq!(commits.take(), Some(begin));
        assert_eq!(commits.lost.load(Relaxed), 0, "not wanted is not lost");
    }
}
