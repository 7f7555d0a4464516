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

/// Most records that are taken at once, so that a program that fills the rings without end does not
/// keep us here.
const MOST: usize = 1 << 17;

/// The observer that reads the rings in the control file; see the head of this file.
pub struct Tap {
    shared: Rc<Shared>,
    /// The program's process, once it is known. What the program writes about that is not believed.
    process: Rc<Cell<Option<ProcessId>>>,
    lines: HashMap<Address, Line>,
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
            lines: HashMap::new(),
        }
    }

    /// Hands on all records that have arrived, in the order of time.
    fn take(&mut self, session: &mut Session) {
        let Some(process) = self.process.get() else {
            return;
        };
        let tracking = &self.shared.tracking;
        let mut changes: Vec<Access> = Vec::new();
        while changes.len() < MOST
            && let Some(record) = tracking.changes().pop()
        {
            changes.extend(accesses(&record));
        }
        let mut moments = Vec::new();
        while moments.len() < MOST
            && let Some(record) = tracking.moments().pop()
        {
            moments.push(sample(process, &record));
        }
        // A commit of several pages has one time; changes are then sorted by thread.
        changes.sort_by_key(|a| (a.time, a.thread, a.address));
        moments.sort_by_key(|s: &RawSample| s.time);
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
        let line = self.lines.entry(base).or_insert(Line {
            since: access.time,
            thread: access.thread,
            is_watched: false,
        });
        if !line.is_watched && line.thread != access.thread {
            line.is_watched = true;
            session.watch_line(process, base, line.since);
        }
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
}
