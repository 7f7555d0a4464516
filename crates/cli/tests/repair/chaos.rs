//! `sunder repair --chaos` on programs that are not made for it: whatever pages are moved and
//! put back, the programs write what they write natively. How many pages are moved depends on the
//! machine, and the tests print it; `sunder-eval -- chaos` repeats this many times, with servers
//! under load too. The library is injected into a running program or, where `ptrace` is refused,
//! preloaded, so that pages of a short program are moved as well.

use crate::support::confine::refuse_ptrace;
use crate::support::installed::{computing, film, text};
use crate::support::limited::{limited, output, status};
use crate::support::natively::natively;
use crate::support::{skips, targets};
use std::path::Path;
use std::process::Command;
use sunder_findings::{Findings, Repair};

/// How the library comes into the program.
#[derive(Clone, Copy, Debug)]
enum Entry {
    Late,
    Loaded,
}
use Entry::{Late, Loaded};

/// Both ways in, each without and with pages moved at random.
const EVERY_WAY: [(Entry, &[&str]); 4] = [
    (Late, &[]),
    (Loaded, &[]),
    (Late, &["--chaos", "1"]),
    (Loaded, &["--chaos", "2"]),
];

/// Runs a program natively and with these options and compares the two; what was reported.
fn same(entry: Entry, options: &[&str], program: &Path, arguments: &[String]) -> Repair {
    let native = natively(Command::new(program).args(arguments));
    let report = tempfile::NamedTempFile::new().expect("a file");
    let mut sunder = crate::support::plain_sunder();
    sunder.args(["repair", "--report"]).arg(report.path());
    sunder.args(options).arg("--").arg(program).args(arguments);
    let mut sunder = limited(&sunder);
    if matches!(entry, Loaded) {
        refuse_ptrace(&mut sunder);
    }
    let seen = sunder.output().expect("timeout runs");
    let said = String::from_utf8_lossy(&seen.stderr);
    let what = format!("{} {entry:?} {options:?}: {said}", program.display());
    assert_eq!(status(&seen), status(&native), "{what}");
    assert!(
        seen.stdout == native.stdout,
        "{} bytes of output are not the {} of the native run: {what}",
        seen.stdout.len(),
        native.stdout.len()
    );
    let findings = Findings::open(report.path()).expect("a report was written");
    findings.repair.expect("it has the part")
}

/// How many moves were made, and the reason if there were none.
fn told(repair: &Repair) -> (usize, Option<&String>) {
    let moves = repair.moved.iter().map(|m| m.moves.len()).sum();
    let refused = repair.refused.first().map(|r| &r.reason);
    (moves, repair.hindrance.as_ref().or(refused))
}

#[test]
fn programs_that_compute_write_what_they_write_natively() {
    let _alone = targets::alone();
    let (text, film) = (text(1_500_000), film(15));
    for (program, arguments) in computing(text.path(), film.path()) {
        for (entry, seed) in [(Late, "1"), (Loaded, "2"), (Loaded, "3")] {
            let repair = same(entry, &["--chaos", seed], &program, &arguments);
            println!("{} {entry:?}: moved {:?}", program.display(), told(&repair));
        }
    }
}

/// The kernel can't lock pages without access, so bytes go back before `mlock`, and locked pages
/// are not moved. Other pages of the program are moved all the same.
#[test]
fn memory_that_is_locked_is_not_moved_and_locking_never_fails() {
    let _alone = targets::alone();
    let program = crate::support::c_program("locked", &[]).expect("it compiles");
    for (entry, options) in EVERY_WAY {
        let repair = same(entry, options, &program, &[]);
        println!("{entry:?} {options:?}: moved {:?}", told(&repair));
    }
}

/// Threads that switch to stacks of the program's own making, in memory whose pages are moved. The
/// library sees the switch or, for threads with alternate signal stacks, a fault reports it.
#[test]
fn stacks_that_a_program_makes_may_be_moved() {
    let _alone = targets::alone();
    let program = crate::support::c_program("fibers", &[]).expect("it compiles");
    for arguments in [&["30000"][..], &["400000", "asm"]] {
        let arguments: Vec<String> = arguments.iter().map(|a| (*a).to_owned()).collect();
        for (entry, seed) in [(Late, "1"), (Late, "2"), (Loaded, "3"), (Loaded, "4")] {
            let repair = same(entry, &["--chaos", seed], &program, &arguments);
            println!("{arguments:?} {entry:?}: moved {:?}", told(&repair));
        }
    }
}

/// Threads that may be cancelled at any instruction, and children by `vfork`, do not prevent
/// moving. A cancelled thread is unwound from the program's code, not from a copy.
#[test]
fn threads_may_be_cancelled_anywhere() {
    let _alone = targets::alone();
    let program =
        crate::support::c_program("cancelled", &["-fexceptions", "-fnon-call-exceptions"])
            .expect("it compiles");
    for (entry, options) in EVERY_WAY {
        for cancels in [true, false] {
            let mut arguments = vec!["800".to_owned()];
            arguments.extend((!cancels).then(|| "stay".to_owned()));
            let repair = same(entry, options, &program, &arguments);
            let (moved, why) = told(&repair);
            println!("{entry:?} {options:?} {arguments:?}: moved {moved}, {why:?}");
            let given_up = why.is_some_and(|why| why.contains("confines itself"));
            assert!(cancels || !given_up, "{entry:?} {options:?}: {why:?}");
        }
    }
}

/// A thread that is cancelled in the kernel never comes back from its call, as natively.
#[test]
fn threads_are_cancelled_in_the_calls_in_which_they_wait() {
    let _alone = targets::alone();
    let program = crate::support::c_program("cancelled_in_calls", &[]).expect("it compiles");
    for (entry, options) in EVERY_WAY {
        let repair = same(entry, options, &program, &[]);
        println!("{entry:?} {options:?}: moved {:?}", told(&repair));
    }
}

/// The preloaded library keeps every thread from blocking the signal that faults raise. That holds
/// also for a thread that begins or ends: the C library blocks all signals then and frees memory.
#[test]
fn no_thread_blocks_the_signal_that_faults_make() {
    let _alone = targets::alone();
    let program = crate::support::c_program("open_faults", &[]).expect("it compiles");
    let mut sunder = crate::support::plain_sunder();
    sunder.args(["repair", "--quiet", "--"]).arg(&program);
    let mut sunder = limited(&sunder);
    refuse_ptrace(&mut sunder);
    let seen = sunder.output().expect("timeout runs");
    assert_eq!(String::from_utf8_lossy(&seen.stdout), "blocked never\n");
}

/// A program that has dropped its privileges can no longer open the file that it shares with the
/// tool, and does not need to.
#[test]
fn programs_that_give_up_their_rights_are_repaired_as_ever() {
    let _alone = targets::alone();
    let program = crate::support::c_program("unprivileged", &[]).expect("it compiles");
    if status(&output(&Command::new(&program))) != Some(0) {
        println!("SKIP: only root can become another user");
        return;
    }
    let repair = same(Loaded, &["--chaos", "1"], &program, &[]);
    println!("moved {:?}", told(&repair));
    let mut refused = repair.refused.iter().map(|r| &r.reason);
    let failed = refused.find(|why| why.contains("the kernel did not move it"));
    assert_eq!(failed, None);
}

/// What the kernel writes to moved bytes (a connection, a message, a signal, a child's end)
/// arrives exactly once, and a signal mask is the one that was set.
#[test]
fn calls_that_take_something_take_it_once() {
    let _alone = targets::alone();
    let program = crate::support::c_program("attached", &[]).expect("it compiles");
    let arguments = ["calls", "600"].map(ToOwned::to_owned);
    for (entry, seed) in [(Late, "1"), (Late, "2"), (Loaded, "3"), (Loaded, "4")] {
        let repair = same(entry, &["--chaos", seed], &program, &arguments);
        println!("{entry:?}: moved {:?}", told(&repair));
    }
}

/// A program filters its system calls and allows none of ours, while more threads than there are
/// CPUs execute copies of code. They leave the copies, and a fault of the program's own reaches its
/// handler as ever.
#[test]
fn programs_that_confine_themselves_go_on() {
    let _alone = targets::alone();
    let program = crate::support::c_program("confines", &[]).expect("it compiles");
    for (entry, options) in EVERY_WAY {
        let repair = same(entry, options, &program, &[]);
        println!("{entry:?} {options:?}: moved {:?}", told(&repair));
    }
}

/// What filters there are is also asked by programs that may never confine themselves.
#[test]
fn a_question_about_filters_moves_nothing_back() {
    let _alone = targets::alone();
    let program = crate::support::c_program("confines", &[]).expect("it compiles");
    let mut any = false;
    skips::begun();
    for (entry, options) in EVERY_WAY {
        let repair = same(entry, options, &program, &["ask".to_owned()]);
        let (moved, why) = told(&repair);
        println!("{entry:?} {options:?}: moved {moved}, {why:?}");
        let given_up = why.is_some_and(|why| why.contains("confines itself"));
        assert!(!given_up, "{entry:?} {options:?}");
        any |= moved > 0;
    }
    if !any {
        skips::too_busy();
        println!("SKIP: nothing was moved before the question");
    }
}
