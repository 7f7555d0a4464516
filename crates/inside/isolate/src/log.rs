//! The framework's log for tools outside: what each commit changed, and when threads were isolated
//! and pages private. Called by [`crate::episode`]. Must not decide anything.
//!
//! Contexts: a worker before it computes, and its signal handler, where no code of the C library
//! may be executed.

use crate::memory::{Fault, Page};
use sunder_access::Granule;
use sunder_transaction::Change;
use sunder_wire::commits::{Commits, Record, kind};

/// Bytes of a line, of which a record has a bit for each.
const LINE: usize = Granule::LINE.bytes() as usize;
const _: () = assert!(LINE == 64, "a mask has 64 bits");

/// The log of one thread.
pub struct Log<'a> {
    commits: &'a Commits,
    thread: u32,
}

impl<'a> Log<'a> {
    /// For this thread.
    pub const fn new(commits: &'a Commits, thread: u32) -> Self {
        Self { commits, thread }
    }

    fn add(&self, kind: u32, detail: u32, time: u64, address: usize, instruction: usize) {
        self.commits.add(&Record {
            kind,
            detail,
            thread: self.thread,
            time,
            address: address as u64,
            instruction: instruction as u64,
            ..Record::default()
        });
    }

    /// The thread's episode begins.
    pub fn begin(&self, time: u64) {
        self.add(kind::BEGIN, 0, time, 0, 0);
    }

    /// The thread's episode ends for this reason.
    pub fn end(&self, time: u64, why: u32) {
        self.add(kind::END, why, time, 0, 0);
    }

    /// The thread has a private copy of a page.
    pub fn private(&self, time: u64, page: Page) {
        self.add(kind::PRIVATE, 0, time, page.address, 0);
    }

    /// A page is shared again; `why` is one of [`sunder_wire::commits::shared`], or 0.
    pub fn shared(&self, time: u64, page: Page, why: u32) {
        self.add(kind::SHARED, why, time, page.address, 0);
    }

    /// The thread's first write to a watched page.
    pub fn write(&self, time: u64, fault: &Fault) {
        self.add(kind::WRITE, 0, time, fault.address, fault.instruction);
    }

    /// The changes of a commit of one page, which began at `time`; all were made after `since`.
    pub const fn changes(
        &self,
        page: Page,
        first: Option<Fault>,
        time: u64,
        since: u64,
    ) -> Changes<'_> {
        Changes {
            log: self,
            page,
            first,
            time,
            since,
            line: 0,
            bytes: 0,
            both: 0,
        }
    }
}

/// Joins the changed words of a commit, which come by ascending address, into a record for each
/// line.
pub struct Changes<'a> {
    log: &'a Log<'a>,
    page: Page,
    first: Option<Fault>,
    time: u64,
    since: u64,
    line: usize,
    bytes: u64,
    both: u64,
}

impl Changes<'_> {
    /// The next changed word.
    pub fn word(&mut self, change: &Change) {
        let at = change.word * 8;
        if at / LINE != self.line {
            self.flush();
            self.line = at / LINE;
        }
        self.bytes |= u64::from(change.bytes) << (at % LINE);
        self.both |= u64::from(change.both) << (at % LINE);
    }

    /// Adds the record of the last line.
    pub fn flush(&mut self) {
        if self.bytes == 0 {
            return;
        }
        let address = self.page.address + self.line * LINE;
        let first = self.first.filter(|f| f.address & !(LINE - 1) == address);
        self.log.commits.add(&Record {
            kind: kind::CHANGE,
            detail: first.map_or(0, |f| (f.address - address) as u32),
            thread: self.log.thread,
            time: self.time,
            since: self.since,
            address: address as u64,
            bytes: self.bytes,
            both: self.both,
            instruction: first.map_or(0, |f| f.instruction as u64),
        });
        (self.bytes, self.both) = (0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    const fn change(word: usize, bytes: u8, both: u8) -> Change {
        Change { word, bytes, both }
    }

    #[test]
    fn changed_words_of_a_line_are_one_record() {
        let control = testing::control();
        let log = Log::new(&control.log, 11);
        let page = Page {
            address: 0x7000,
            number: 0,
        };
        let first = Fault {
            address: 0x704c,
            instruction: 0x1234,
        };
        let mut changes = log.changes(page, Some(first), 9, 5);
        for word in [
            change(1, 0b11, 0),
            change(7, 0x80, 0x80),
            change(9, 0xf0, 0),
            change(511, 1, 1),
        ] {
            changes.word(&word);
        }
        changes.flush();
        changes.flush();
        let expected = |address, bytes, both, detail, instruction| Record {
            kind: kind::CHANGE,
            detail,
            thread: 11,
            time: 9,
            since: 5,
            address,
            bytes,
            both,
            instruction,
        };
        let told = [
            expected(0x7000, 0b11 << 8 | 1 << 63, 1 << 63, 0, 0),
            expected(0x7040, 0xf0 << 8, 0, 12, 0x1234),
            expected(0x7fc0, 1 << 56, 1 << 56, 0, 0),
        ];
        for record in told {
            assert_eq!(control.log.take(), Some(record));
        }
        assert_eq!(control.log.take(), None);
    }
}
