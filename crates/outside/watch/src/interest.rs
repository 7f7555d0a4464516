//! Which of the kernel's reports matter to the watch. Thousands of processes a second may start and end
//! that have no sample; what is told of them is left out before it is kept and ordered. Pure.

use std::collections::HashSet;
use sunder_access::ProcessId;
use sunder_observe::Event;

/// The processes of which samples have come and may not have been counted yet.
#[derive(Debug, Default)]
pub struct Interest {
    lately: HashSet<ProcessId>,
    before: HashSet<ProcessId>,
}

impl Interest {
    /// The rings are read again. Samples of the reading before the last one have been counted.
    pub fn begin(&mut self) {
        std::mem::swap(&mut self.lately, &mut self.before);
        self.lately.clear();
    }

    /// Whether the event matters. `is_known` says of a process whether anything is kept about it,
    /// `is_looked_at` whether it is looked at closely.
    pub fn is_in(
        &mut self,
        event: &Event,
        is_known: impl Fn(ProcessId) -> bool,
        is_looked_at: impl Fn(ProcessId) -> bool,
    ) -> bool {
        match event {
            Event::Sample(sample) => {
                self.lately.insert(sample.process);
                true
            }
            // The end of a process, or of its program.
            Event::ThreadEnd { process, .. }
            | Event::ThreadName {
                process,
                exec: true,
                ..
            } => {
                let fresh = [&self.lately, &self.before];
                fresh.iter().any(|set| set.contains(process)) || is_known(*process)
            }
            Event::ThreadStart { process, .. } | Event::ThreadName { process, .. } => {
                is_looked_at(*process)
            }
            _ => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sunder_access::{ThreadId, Time};
    use sunder_observe::{RawSample, Registers};

    const SAMPLED: ProcessId = ProcessId(7);
    const TIME: Time = Time(1);

    fn end(process: ProcessId) -> Event {
        Event::ThreadEnd {
            process,
            thread: ThreadId(process.0),
            time: TIME,
        }
    }

    fn sample() -> Event {
        Event::Sample(RawSample {
            time: TIME,
            process: SAMPLED,
            thread: ThreadId(SAMPLED.0),
            cpu: 0,
            period_ns: 1,
            registers: Registers::default(),
        })
    }

    #[test]
    fn the_end_of_what_had_a_sample_matters_until_it_has_been_counted() {
        let mut interest = Interest::default();
        let no = |_| false;
        interest.begin();
        assert!(!interest.is_in(&end(SAMPLED), no, no));
        assert!(interest.is_in(&sample(), no, no));
        assert!(interest.is_in(&end(SAMPLED), no, no));
        assert!(!interest.is_in(&end(ProcessId(8)), no, no));
        interest.begin();
        assert!(interest.is_in(&end(SAMPLED), no, no), "it may still wait");
        interest.begin();
        assert!(!interest.is_in(&end(SAMPLED), no, no));
        assert!(interest.is_in(&end(SAMPLED), |process| process == SAMPLED, no));
    }

    #[test]
    fn a_new_thread_matters_in_a_process_that_is_looked_at() {
        let mut interest = Interest::default();
        let event = Event::ThreadStart {
            process: SAMPLED,
            parent: SAMPLED,
            thread: ThreadId(9),
            time: TIME,
        };
        let (yes, no) = (|_| true, |_| false);
        assert!(!interest.is_in(&event, yes, no));
        assert!(interest.is_in(&event, yes, yes));
        assert!(interest.is_in(&Event::Lost(3), no, no));
    }
}
