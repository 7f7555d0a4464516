//! Turns what workers report into events: changed bytes into accesses, and interrupted threads into
//! samples. Called by `live` whenever it drains the observers. Must not decide anything.

use crate::commits::CommitLog;
use crate::shared::Shared;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::convert::Infallible;
use std::rc::Rc;
use sunder_access::{
    Access, Address, CodeAddress, Granule, Kind, ProcessId, Provenance, ThreadId, Time,
};
use sunder_live::LiveObserver;
use sunder_observe::{Event, RawSample, Registers};
use sunder_pipeline::{Observer, Session};
use sunder_wire::commits::{Record, kind};
use sunder_wire::tracking::MOMENT_WORDS;

/// Most moments that are taken at once, so that a program that fills the ring without end does not
/// keep us here.
const MOST: usize = 1 << 17;
/// Most lines of which the first thread is remembered: those of 64 MiB that threads write together.
/// The heap's history of further lines is not kept.
const MOST_LINES: usize = 1 << 20;

/// The observer that reads the rings in the control file; see the head of this file.
pub struct Tap {
    shared: Rc<Shared>,
    log: Rc<RefCell<CommitLog>>,
    /// The program's process, once it is known. What the program writes about that is not believed.
    process: Rc<Cell<Option<ProcessId>>>,
    lines: Lines,
}

/// The first change that was seen on a line.
#[derive(Clone, Copy)]
struct Line {
    since: Time,
    thread: ThreadId,
    is_watched: bool,
}

impl Tap {
    /// For what the workers write into the control file; `log` is where their commits are taken
    /// from.
    pub fn new(
        shared: Rc<Shared>,
        log: Rc<RefCell<CommitLog>>,
        process: Rc<Cell<Option<ProcessId>>>,
    ) -> Self {
        Self {
            shared,
            log,
            process,
            lines: Lines::default(),
        }
    }

    /// Hands on all records that have arrived, in the order of time.
    fn take(&mut self, session: &mut Session) {
        let Some(process) = self.process.get() else {
            return;
        };
        let tracking = &self.shared.tracking;
        let records = self.log.borrow_mut().take();
        let mut changes: Vec<Access> = records.iter().flat_map(accesses).collect();
        let moments = std::iter::from_fn(|| tracking.moments().pop());
        let moments = moments.take(MOST).map(|record| sample(process, &record));
        let mut moments: Vec<RawSample> = moments.collect();
        // A commit of several pages has one time; changes are then sorted by thread.
        changes.sort_by_key(|a| (a.time, a.thread, a.address));
        moments.sort_by_key(|s| s.time);
        let mut moments = moments.into_iter().peekable();
        for access in changes {
            while let Some(sample) = moments.next_if(|s| s.time <= access.time) {
                session.event(Event::Sample(sample));
            }
            self.follow(process, &access, session);
            session.event(Event::Access {
                process,
                hitm: false,
                access,
            });
        }
        for sample in moments {
            session.event(Event::Sample(sample));
        }
    }

    /// Has the heap's history of a line kept from its second thread on. Accesses before the present
    /// owner of the memory are not counted (SHERIFF, section 4.5).
    fn follow(&mut self, process: ProcessId, access: &Access, session: &mut Session) {
        let granule: Granule = session.granule();
        let base = granule.base(access.address);
        if let Some(since) = self.lines.second_thread(base, access) {
            session.watch_line(process, base, since);
        }
    }
}

/// Lines with changes; [`MOST_LINES`] at most.
#[derive(Default)]
struct Lines(HashMap<Address, Line>);

impl Lines {
    /// The time of the first change of the line at `base`, if `access` is the first by another
    /// thread.
    fn second_thread(&mut self, base: Address, access: &Access) -> Option<Time> {
        if self.0.len() >= MOST_LINES && !self.0.contains_key(&base) {
            return None;
        }
        let line = self.0.entry(base).or_insert(Line {
            since: access.time,
            thread: access.thread,
            is_watched: false,
        });
        let is_second = !line.is_watched && line.thread != access.thread;
        line.is_watched |= is_second;
        is_second.then_some(line.since)
    }
}

impl Observer for Tap {
    type Error = Infallible;

    fn drain(&mut self, session: &mut Session) -> Result<(), Infallible> {
        self.take(session);
        Ok(())
    }
}

impl LiveObserver for Tap {
    fn is_inside(&self) -> bool {
        true
    }

    fn makes_processes(&self) -> bool {
        true
    }

    /// A commit compares bytes, so its accesses are exact.
    fn confirms(&self) -> bool {
        true
    }
}

/// The changed bytes of a line, one access for each run of neighbouring bytes of a word. A record
/// may hold none.
fn accesses(record: &Record) -> Vec<Access> {
    let mut runs = Vec::new();
    if record.kind != kind::CHANGE {
        return runs;
    }
    for word in 0..8u32 {
        let mask = (record.bytes >> (word * 8)) as u8;
        let instruction = match record.detail / 8 {
            first if first == word => record.instruction,
            _ => 0,
        };
        let mut at = 0u32;
        while at < 8 {
            let rest = mask >> at;
            if rest == 0 {
                break;
            }
            at += rest.trailing_zeros();
            let width = (mask >> at).trailing_ones();
            let offset = u64::from(word * 8 + at);
            runs.push(Access {
                time: Time(record.time),
                thread: ThreadId(record.thread),
                instruction: CodeAddress(instruction),
                address: Address(record.address.wrapping_add(offset)),
                width: width as u8,
                kind: Kind::Write,
                provenance: Provenance::Diffed,
                weight: 1.0,
            });
            at += width;
        }
    }
    runs
}

fn sample(process: ProcessId, record: &[u64; MOMENT_WORDS]) -> RawSample {
    let [time, thread_and_cpu, period, ip, registers @ ..] = *record;
    RawSample {
        time: Time(time),
        process,
        thread: ThreadId(thread_and_cpu as u32),
        cpu: (thread_and_cpu >> 32) as u32,
        period_ns: period,
        registers: Registers {
            general: registers,
            ip: CodeAddress(ip),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(thread: u32, time: u64, line: u64, bytes: u64) -> Record {
        Record {
            kind: kind::CHANGE,
            thread,
            time,
            address: line,
            bytes,
            ..Record::default()
        }
    }

    #[test]
    fn changed_bytes_of_a_line_are_runs_within_words() {
        let runs = |bytes: u64| -> Vec<(u64, u8)> {
            let all = accesses(&change(9, 7, 0x1000, bytes));
            assert!(all.iter().all(|a| a.thread == ThreadId(9)));
            all.iter().map(|a| (a.address.0, a.width)).collect()
        };
        assert_eq!(runs(0b1111_1111), [(0x1000, 8)]);
        assert_eq!(runs(0b0000_0001), [(0x1000, 1)]);
        assert_eq!(runs(0b1000_0110), [(0x1001, 2), (0x1007, 1)]);
        assert_eq!(runs(0x1_8000), [(0x100f, 1), (0x1010, 1)]);
        assert_eq!(runs(1 << 63), [(0x103f, 1)]);
        assert_eq!(runs(u64::MAX).len(), 8);
        assert_eq!(runs(0), []);
    }

    #[test]
    fn the_known_instruction_is_that_of_its_word() {
        let record = Record {
            detail: 12,
            instruction: 0x1234,
            ..change(9, 7, 0x1000, 0xf0f0f0)
        };
        let known: Vec<(u64, u64)> = accesses(&record)
            .iter()
            .map(|a| (a.address.0, a.instruction.0))
            .collect();
        assert_eq!(known, [(0x1004, 0), (0x100c, 0x1234), (0x1014, 0)]);
    }

    #[test]
    fn other_records_are_no_accesses() {
        let begin = Record {
            kind: kind::BEGIN,
            ..change(9, 7, 0x1000, 1)
        };
        assert!(accesses(&begin).is_empty());
    }

    #[test]
    fn lines_are_remembered_up_to_a_number() {
        let by =
            |thread, line: usize| accesses(&change(thread, line as u64, line as u64 * 64, 1))[0];
        let mut lines = Lines::default();
        let mut met = |thread, line| {
            let access = by(thread, line);
            lines.second_thread(access.address, &access)
        };
        for line in 0..MOST_LINES + 10 {
            assert_eq!(met(1, line), None);
        }
        assert_eq!(met(2, 5), Some(Time(5)));
        assert_eq!(met(3, 5), None);
        assert_eq!(met(2, MOST_LINES + 5), None);
    }
}
