//! The clock of all events' times.

use sunder_access::Time;

/// Now, on `CLOCK_MONOTONIC`.
pub fn monotonic_now() -> Time {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is a valid place for the answer; the clock exists on every
    // Linux, so the call cannot fail.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    Time(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}
