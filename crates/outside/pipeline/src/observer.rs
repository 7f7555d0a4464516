//! What all sources of events have in common: a sampler of a running program, a file that `perf`
//! recorded, a trace that is replayed. Each hands over what it saw to a [`Session`], always by
//! [`take`] or [`take_rest`]. An observer must not judge, and must not know about other
//! observers.

use crate::session::Session;
use sunder_findings::Limit;
use sunder_observe::monotonic_now;

/// A source of events about programs.
///
/// Nothing here waits: a recording has nothing to wait for. What only the observer of a running
/// program can do is in `LiveObserver` of the crate `live`.
pub trait Observer {
    /// Why it can fail. A live observer can't: what it misses is one of its limits.
    type Error;

    /// Hands over what has come since the last call. A recording hands over all of it at once,
    /// and nothing later.
    ///
    /// # Errors
    /// If what was recorded can't be read.
    fn drain(&mut self, session: &mut Session) -> Result<(), Self::Error>;

    /// Hands over everything that is left, after the target has ended or the time is over.
    ///
    /// # Errors
    /// As [`Self::drain`].
    fn finish(&mut self, session: &mut Session) -> Result<(), Self::Error> {
        self.drain(session)
    }

    /// What the observer could not see.
    fn limits(&self) -> Vec<Limit> {
        Vec::new()
    }
}

/// Takes into `session` what `observer` has seen since the last call, while the target lives.
///
/// # Errors
/// Those of the observer.
pub fn take<O: Observer + ?Sized>(observer: &mut O, session: &mut Session) -> Result<(), O::Error> {
    begin_epoch(session);
    observer.drain(session)?;
    // Accesses come before heap events: a heap event about the past must find the samples taken
    // before it.
    session.flush(monotonic_now());
    session.heap_events();
    Ok(())
}

/// Takes into `session` everything that `observer` has left: all of a recording, or the last
/// events of a target that has ended.
///
/// # Errors
/// Those of the observer.
pub fn take_rest<O: Observer + ?Sized>(
    observer: &mut O,
    session: &mut Session,
) -> Result<(), O::Error> {
    begin_epoch(session);
    observer.finish(session)?;
    session.pass_on();
    session.heap_events();
    Ok(())
}

/// Begins an epoch of the heaps that runtimes record. It must begin before the events that are
/// compared with it.
fn begin_epoch(session: &Session) {
    let now = monotonic_now();
    for heap in session.heaps() {
        heap.segment.advance_epoch(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::{Follow, judge_config};
    use std::convert::Infallible;
    use sunder_access::{
        Access, Address, CodeAddress, Kind, ProcessId, Provenance, ThreadId, Time,
    };
    use sunder_observe::Event;

    /// Two threads that write in turn to neighbouring words.
    struct Recording {
        left: std::ops::Range<u64>,
    }

    impl Observer for Recording {
        type Error = Infallible;

        fn drain(&mut self, session: &mut Session) -> Result<(), Infallible> {
            for turn in self.left.by_ref() {
                session.event(Event::Access {
                    process: ProcessId(7),
                    hitm: false,
                    access: Access {
                        time: Time(turn * 100),
                        thread: ThreadId(7 + (turn % 2) as u32),
                        instruction: CodeAddress(0x400),
                        address: Address(0x1000 + turn % 2 * 8),
                        width: 8,
                        kind: Kind::Write,
                        provenance: Provenance::Traced,
                        weight: 1.0,
                    },
                });
            }
            Ok(())
        }
    }

    #[test]
    fn a_recording_is_handed_over_once() {
        let config = judge_config(64, None).expect("a size of lines");
        let mut session = Session::recorded(config, Follow::All);
        let mut recording = Recording { left: 0..100 };
        let Ok(()) = take(&mut recording, &mut session);
        let Ok(()) = take_rest(&mut recording, &mut session);
        let process = session.process(ProcessId(7));
        assert_eq!(process.figures.accesses, 100);
        assert_eq!(process.judge.verdicts().len(), 1);
    }
}
