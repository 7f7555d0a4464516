//! `sunder repair` on threads that clear and copy their data by string instructions: these use the
//! moved bytes in copies of their loop.

use crate::support::repaired::rounds_until_moved;
use crate::support::{c_program, targets};

/// Rounds that take some tenths of a second.
const ROUNDS: u64 = 2_000_000;

/// After so many runs beside busy programs it is not chance.
const RUNS: u32 = 8;

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
        let stays = (0..RUNS).any(|_| {
            let run = rounds_until_moved(name, &program, ROUNDS);
            let Some(run) = run else { return true };
            let moved = &run.repair().moved[0];
            let back = moved.rolled_back.as_ref();
            let other = back.filter(|b| !BUSY.iter().any(|busy| b.reason.starts_with(busy)));
            assert!(other.is_none(), "{}", run.stderr);
            // A string instruction outside of the copies would fault, in each of millions of rounds; so does
            // one after a signal.
            assert!(moved.faults < ROUNDS / 100, "{moved:#?}");
            moved.code.iter().any(|c| c.loops > 0) && (back.is_none() || !gains)
        });
        assert!(
            stays,
            "{name}: in none of {RUNS} runs it stayed in copies with loops"
        );
    }
}
