//! `sunder repair` on threads that clear and copy their data by string instructions: these use the
//! moved bytes in copies of their loop.

use crate::support::repaired::{MOST_BUSY_RUNS, rounds_until_moved};
use crate::support::{c_program, contention, skips, targets};

/// Rounds that take some tenths of a second.
const ROUNDS: u64 = 2_000_000;

/// So many runs in which its threads contended, and it did not stay, are no chance.
const MOST_MISSED: u32 = 3;

/// Why bytes may go back on a busy machine.
const BUSY: [&str; 2] = ["it did not help", "its threads waited for copies of code"];

/// With and without optimisation the pointers come from registers or from the frame. Without, most of
/// the time goes into the frame, and there may be no gain.
#[test]
fn string_instructions_use_moved_bytes_in_copies() {
    let _alone = targets::alone();
    for (name, flags, gains) in [
        ("cleared-O2", &["-O2"][..], true),
        ("cleared-O0", &["-O0"], false),
    ] {
        let program = c_program("cleared", flags).expect("it compiles");
        let mut missed = 0;
        skips::begun();
        let stays = (0..MOST_BUSY_RUNS).any(|_| {
            let run = rounds_until_moved(name, &program, ROUNDS);
            let Some(run) = run else { return true };
            let moved = &run.repair().moved[0];
            let back = moved.rolled_back.as_ref();
            let other = back.filter(|b| !BUSY.iter().any(|busy| b.reason.starts_with(busy)));
            assert!(other.is_none(), "{}", run.stderr);
            // A string instruction outside of the copies would fault, in each of millions of rounds; so does
            // one after a signal.
            assert!(moved.faults < ROUNDS / 100, "{moved:#?}");
            let stays = moved.code.iter().any(|c| c.loops > 0) && (back.is_none() || !gains);
            // Where passing a line on costs nothing, moving its bytes does not help.
            missed += u32::from(!stays && run.side_by_side() && contention::is_felt().0);
            assert!(missed < MOST_MISSED, "{name}: {}", run.stderr);
            stays
        });
        if !stays {
            skips::too_busy();
            println!("SKIP: {name}: its threads did not contend");
        }
    }
}
