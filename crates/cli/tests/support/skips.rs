//! Counts, for one test binary's run, the checks that were skipped because the machine was too busy.
//! The harness has no hook for the end of a run, so a handler at the process's exit prints the
//! count, and fails the run if need be. Checks that can never run
//! here (no perf, one CPU) are not counted, for no repetition would help.

use std::io::Write as _;
use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

static CHECKS: AtomicU32 = AtomicU32::new(0);
static SKIPPED: AtomicU32 = AtomicU32::new(0);
static AT_EXIT: Once = Once::new();

/// The exit status of the harness for a run that failed.
const FAILED: i32 = 101;

/// Counts a check that begins.
pub fn begun() {
    // SAFETY: the function takes nothing and does not unwind.
    AT_EXIT.call_once(|| assert_eq!(unsafe { libc::atexit(at_exit) }, 0));
    CHECKS.fetch_add(1, Relaxed);
}

/// Counts a check that was skipped because its threads did not run side by side.
pub fn too_busy() {
    SKIPPED.fetch_add(1, Relaxed);
}

extern "C" fn at_exit() {
    let (checks, skipped) = (CHECKS.load(Relaxed), SKIPPED.load(Relaxed));
    // Not `println`, which may panic while the process exits.
    let mut out = std::io::stdout();
    let _ = writeln!(out, "{skipped} of {checks} checks side by side skipped");
    if shows_nothing(checks, skipped) {
        let _ = writeln!(
            out,
            "FAILED: the machine is too busy for these tests to show anything"
        );
        let _ = out.flush();
        // SAFETY: ends the process at once; nothing of ours is left to be done.
        unsafe { libc::_exit(FAILED) };
    }
    let _ = out.flush();
}

/// Whether half of the checks or more were skipped.
const fn shows_nothing(checks: u32, skipped: u32) -> bool {
    skipped > 0 && skipped * 2 >= checks
}

#[test]
fn half_is_too_many() {
    assert!(!shows_nothing(0, 0) && !shows_nothing(3, 1));
    assert!(shows_nothing(4, 2) && shows_nothing(1, 1));
}
