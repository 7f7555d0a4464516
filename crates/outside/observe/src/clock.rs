//! The clock of all events' times, and that of a thread's CPU time.

use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;
use sunder_access::Time;

/// The CPU time of the calling thread so far.
pub fn thread_time() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

/// Now, on `CLOCK_MONOTONIC`.
pub fn monotonic_now() -> Time {
    let now = clock_gettime(ClockId::Monotonic);
    Time(now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64)
}
