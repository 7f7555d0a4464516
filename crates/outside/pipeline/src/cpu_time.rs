//! The CPU time of this process and of its children that were waited for.

use std::time::Duration;

/// CPU seconds of this process so far.
pub fn own_cpu_seconds() -> f64 {
    cpu_seconds(libc::RUSAGE_SELF)
}

/// CPU seconds of the children that have ended and were waited for.
pub fn childrens_cpu_seconds() -> f64 {
    cpu_seconds(libc::RUSAGE_CHILDREN)
}

fn cpu_seconds(whose: libc::c_int) -> f64 {
    // SAFETY: `rusage` is plain data for which zeroes are valid.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: `usage` is a valid place for the result.
    unsafe { libc::getrusage(whose, &raw mut usage) };
    let seconds = |t: libc::timeval| {
        Duration::new(
            t.tv_sec.unsigned_abs(),
            t.tv_usec.unsigned_abs() as u32 * 1000,
        )
        .as_secs_f64()
    };
    seconds(usage.ru_utime) + seconds(usage.ru_stime)
}
