//! When each of a few threads had a processor, for a short while: exact turns, from the kernel's
//! records of context switches.
//!
//! Called by the room `gain`, which must know for how long a thread ran beside its rivals. Needs perf
//! events, no PMU. Dropping the value must end all recording. It interprets nothing.

use crate::perf_event::{Attr, EventTarget, PerfEvent, Records, Ring, SampleLayout, kernel};
use crate::{PerfRefusal, monotonic_now};
use std::ops::Range;
use sunder_access::{ProcessId, ThreadId, Time};

/// The fields behind each record.
const TRAILER: SampleLayout = SampleLayout {
    sample_type: (kernel::PERF_SAMPLE_TID | kernel::PERF_SAMPLE_TIME) as u64,
    read_format: 0,
    branch_sample_type: 0,
    user_registers: 0,
};

/// Pages of a ring: 4 KiB hold 170 switches.
const PAGES: usize = 4;

/// One thread whose switches are recorded.
#[derive(Debug)]
struct Recorded {
    thread: ThreadId,
    event: PerfEvent,
    ring: Ring,
}

/// The recording. See the module's head.
#[derive(Debug)]
pub struct Presence {
    since: Time,
    threads: Vec<Recorded>,
}

/// The turns of one thread: from when to when it had a processor, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Turns {
    /// The thread.
    pub thread: ThreadId,
    /// Its turns.
    pub turns: Vec<Range<Time>>,
}

impl Presence {
    /// Begins to record `threads`. Those that have ended are left out.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn begin(process: ProcessId, threads: &[ThreadId]) -> Result<Self, PerfRefusal> {
        // Counts CPU time, which tells of a thread without a switch whether it ran.
        let mut attr = Attr::software(kernel::PERF_COUNT_SW_TASK_CLOCK);
        attr.sample_type = TRAILER.sample_type;
        attr.set_sample_id_all(1);
        attr.set_context_switch(1);
        let mut all = Vec::new();
        for &thread in threads {
            let refused = |error: std::io::Error| {
                PerfRefusal::from_errno(error.raw_os_error().unwrap_or_default(), process)
            };
            let event = match PerfEvent::open(&attr, EventTarget::Thread(thread.0)) {
                Err(error) if error.raw_os_error() == Some(libc::ESRCH) => continue,
                other => other.map_err(refused)?,
            };
            let ring = Ring::map_up_to(&event, PAGES, 1)?;
            all.push(Recorded {
                thread,
                event,
                ring,
            });
        }
        let since = monotonic_now();
        for one in &all {
            let _ = one.event.enable();
        }
        Ok(Self {
            since,
            threads: all,
        })
    }

    /// Ends the recording. `None` if records were lost.
    pub fn end(self) -> Option<Vec<Turns>> {
        let until = monotonic_now();
        let mut all = Vec::new();
        for mut one in self.threads {
            let ran = one.event.count().unwrap_or(0) > 0;
            let _ = one.event.disable();
            let mut records = Vec::new();
            one.ring.take(&mut records);
            all.push(Turns {
                thread: one.thread,
                turns: turns(&records, self.since..until, ran)?,
            });
        }
        Some(all)
    }
}

/// The turns within `window` that the switches in `records` tell; without any, all of it if the thread
/// `ran` at all. `None` if records were lost.
fn turns(records: &[u8], window: Range<Time>, ran: bool) -> Option<Vec<Range<Time>>> {
    let mut turns = Vec::new();
    // When the present turn began; before the first switch, it may have been under way.
    let mut since = Some(window.start);
    let mut switched = false;
    for record in Records::new(records) {
        match record.kind {
            kernel::PERF_RECORD_LOST => return None,
            kernel::PERF_RECORD_SWITCH => {
                let time = Time(TRAILER.trailer_time(record.body)?).min(window.end);
                if record.misc & kernel::PERF_RECORD_MISC_SWITCH_OUT as u16 == 0 {
                    since = Some(time);
                } else if let Some(since) = since.take()
                    && since < time
                {
                    turns.push(since..time);
                }
                switched = true;
            }
            _ => {}
        }
    }
    if let Some(since) = since.filter(|_| switched || ran)
        && since < window.end
    {
        turns.push(since..window.end);
    }
    Some(turns)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A record of a switch at `time`.
    fn switch(out: bool, time: u64) -> Vec<u8> {
        let misc = if out {
            kernel::PERF_RECORD_MISC_SWITCH_OUT as u16
        } else {
            0
        };
        let mut bytes = kernel::PERF_RECORD_SWITCH.to_le_bytes().to_vec();
        bytes.extend(misc.to_le_bytes());
        bytes.extend(24_u16.to_le_bytes());
        bytes.extend([0; 8]);
        bytes.extend(time.to_le_bytes());
        bytes
    }

    fn of(records: &[Vec<u8>], ran: bool) -> Option<Vec<(u64, u64)>> {
        let turns = turns(&records.concat(), Time(100)..Time(200), ran)?;
        Some(turns.iter().map(|t| (t.start.0, t.end.0)).collect())
    }

    #[test]
    fn a_thread_without_switches_ran_all_the_time_or_never() {
        assert_eq!(of(&[], true), Some(vec![(100, 200)]));
        assert_eq!(of(&[], false), Some(vec![]));
    }

    #[test]
    fn turns_lie_between_switches() {
        let ends_first = [switch(true, 130), switch(false, 150), switch(true, 160)];
        assert_eq!(of(&ends_first, true), Some(vec![(100, 130), (150, 160)]));
        let goes_on = [switch(true, 130), switch(false, 150)];
        assert_eq!(of(&goes_on, true), Some(vec![(100, 130), (150, 200)]));
    }

    /// The first switch says that the thread had no processor before.
    #[test]
    fn a_thread_that_was_switched_in_first_had_waited() {
        assert_eq!(of(&[switch(false, 140)], true), Some(vec![(140, 200)]));
    }

    #[test]
    fn lost_records_leave_nothing_known() {
        let mut lost = kernel::PERF_RECORD_LOST.to_le_bytes().to_vec();
        lost.extend([0, 0, 24, 0]);
        lost.extend([0; 16]);
        assert_eq!(of(&[switch(true, 130), lost], true), None);
    }

    /// A thread that sleeps half of the time has turns of about half of it, one that computes has all
    /// that it used CPU time for.
    #[test]
    fn turns_are_as_long_as_the_cpu_time() {
        let own = crate::own_thread();
        let process = ProcessId(std::process::id());
        let presence = match Presence::begin(process, &[own]) {
            Ok(presence) => presence,
            Err(refusal) => {
                println!("SKIP: {refusal}");
                return;
            }
        };
        let cpu = || rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        let before = cpu();
        for _ in 0..5 {
            std::thread::sleep(std::time::Duration::from_millis(2));
            let from = cpu().tv_nsec;
            while cpu().tv_nsec.abs_diff(from) < 2_000_000 {}
        }
        let used = cpu() - before;
        let turns = presence.end().expect("few records");
        assert_eq!(turns[0].thread, own);
        let all = turns[0].turns.iter();
        let all: u64 = all.map(|t| t.end.nanoseconds_since(t.start)).sum();
        let used = used.tv_sec as u64 * 1_000_000_000 + used.tv_nsec as u64;
        // The record of a switch is written a little after the clock has changed.
        assert!(all + 1_000_000 >= used, "{all} {used}");
        assert!(turns[0].turns.len() >= 5, "{turns:?}");
    }
}
