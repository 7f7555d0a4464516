//! Turns what workers report into events: changed words into accesses, and interrupted threads into
//! samples. Called by `live` whenever it drains the observers. Must not decide anything.

use crate::shared::Shared;
use std::cell::Cell;
use std::collections::HashMap;
use std::convert::Infallible;
use std::rc::Rc;
use sunder_access::{
    Access, Address, CodeAddress, Granule, Kind, ProcessId, Provenance, ThreadId, Time,
};
use sunder_live::LiveObserver;
use sunder_observe::{Event, RawSample, Registers};
use sunder_pipeline::{Observer, Session};
use sunder_wire::tracking::{CHANGE_WORDS, MOMENT_WORDS};

/// Most records of a ring that are taken at once, so that a program that fills the rings without end
/// does not keep us here.
const MOST: usize = 1 << 17;
/// Most lines of which the first thread is remembered: those of 64 MiB that threads write together.
/// The heap's history of further lines is not kept.
const MOST_LINES: usize = 1 << 20;

/// The observer that reads the rings in the control file; see the head of this file.
pub struct Tap {
    shared: Rc<Shared>,
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
    /// For what the workers write into the control file's rings.
    pub fn new(shared: Rc<Shared>, process: Rc<Cell<Option<ProcessId>>>) -> Self {
        Self {
            shared,
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
        let mut changes = accesses_of(std::iter::from_fn(|| tracking.changes().pop()));
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

/// The changes in the first [`MOST`] of these records. A record may hold none.
fn accesses_of(records: impl Iterator<Item = [u64; CHANGE_WORDS]>) -> Vec<Access> {
    let records = records.take(MOST);
    records.flat_map(|record| accesses(&record)).collect()
}

/// The changed bytes of a word, one access for each run of neighbouring bytes.
fn accesses(record: &[u64; CHANGE_WORDS]) -> Vec<Access> {
    let [time, thread, word, bytes, instruction] = *record;
    let mut runs = Vec::new();
    let mut at = 0u32;
    let mask = bytes as u8;
    while at < 8 {
        let rest = mask >> at;
        let gap = rest.trailing_zeros();
        if rest == 0 {
            break;
        }
        at += gap;
        let width = (mask >> at).trailing_ones();
        runs.push(Access {
            time: Time(time),
            thread: ThreadId(thread as u32),
            instruction: CodeAddress(instruction),
            address: Address(word.wrapping_add(at.into())),
            width: width as u8,
            kind: Kind::Write,
            provenance: Provenance::Diffed,
            weight: 1.0,
        });
        at += width;
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

    #[test]
    fn changed_bytes_of_a_word_are_runs() {
        let runs = |bytes: u64| -> Vec<(u64, u8)> {
            let all = accesses(&[7, 9, 0x1000, bytes, 0]);
            assert!(all.iter().all(|a| a.thread == ThreadId(9)));
            all.iter().map(|a| (a.address.0, a.width)).collect()
        };
        assert_eq!(runs(0b1111_1111), [(0x1000, 8)]);
        assert_eq!(runs(0b0000_0001), [(0x1000, 1)]);
        assert_eq!(runs(0b1000_0110), [(0x1001, 2), (0x1007, 1)]);
        assert_eq!(runs(0), []);
    }

    /// The program refills the ring while it is read, with records of no changed byte.
    #[test]
    fn records_without_changes_do_not_come_for_ever() {
        assert!(accesses_of(std::iter::repeat([7, 9, 0x1000, 0, 0])).is_empty());
        let changed = std::iter::repeat([7, 9, 0x1000, 1, 0]);
        assert_eq!(accesses_of(changed).len(), MOST);
    }

    #[test]
    fn lines_are_remembered_up_to_a_number() {
        let by = |thread, line: usize| accesses(&[line as u64, thread, line as u64 * 64, 1, 0])[0];
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
