//! The clock of all events' times.

use rustix::time::{ClockId, clock_gettime};
use sunder_access::Time;

/// Now, on `CLOCK_MONOTONIC`.
pub fn monotonic_now() -> Time {
    let now = clock_gettime(ClockId::Monotonic);
    Time(now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64)
}
