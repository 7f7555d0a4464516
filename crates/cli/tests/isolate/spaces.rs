//! A program's address space while its memory is sharable (`tests/programs/spaces.c`): memory that
//! is moved, discarded, replaced by a file or copied for a child is what it is natively. The
//! program waits until the memory of each case is sharable, so nothing is judged by time.

use crate::support::c_program;
use crate::support::limited::{can_stop_threads, output};
use std::process::Command;

/// Runs the case alone and protected; both must have this output.
fn says(case: &str, expected: &str) {
    let _alone = crate::support::targets::alone();
    crate::support::usual_signals();
    let program = c_program("spaces", &["-w"]).expect("it compiles");
    let expected = format!("{expected}right 1 1\n");
    let native = output(Command::new(&program).arg(case));
    if native.status.code() == Some(77) {
        println!("SKIP: {case}: {}", String::from_utf8_lossy(&native.stdout));
        return;
    }
    let text = String::from_utf8_lossy(&native.stdout);
    assert_eq!((native.status.code(), &*text), (Some(3), &*expected));
    for options in [&[][..], &["--every", "500"]] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sunder"));
        command.arg("protect").args(options);
        command.args(["--isolate-global", "shared", "--"]);
        command.arg(&program).args([case, "wait"]);
        let protected = output(&command);
        if !can_stop_threads(&protected) {
            return;
        }
        let text = String::from_utf8_lossy(&protected.stdout);
        let ended = (protected.status.code(), &*text);
        assert_eq!(ended, (Some(3), &*expected), "{options:?}: {protected:?}");
    }
}

/// Before the parent forks, its sharable memory becomes private again.
#[test]
fn a_conversion_that_ends_half_way_leaves_nothing_that_a_child_shares() {
    says("half", "stack 0\nchild 3, here 1 1\n");
}

#[test]
fn a_file_that_comes_where_sharable_memory_was_grows_as_a_file() {
    says("file", "there 1\nin the file ab\nchild 0, in common c\n");
}

#[test]
fn memory_grows_and_shrinks_by_whole_pages() {
    let lines = "grown 1\nsame 1\nbeyond the end 1\nless 1\nnothing 1\ntoo much 1\n";
    says("lengths", lines);
}

/// A thread that waits 0.4 s for a child of `vfork` does not stop before.
#[test]
fn a_fork_beside_a_thread_that_is_long_in_the_kernel_succeeds() {
    says("slow", "child 5\n");
}

/// The child's status is a sum: 1 for a page that the child finds empty, 2 for a page that it does
/// not have, 4 for a block that is whole, 8 for a block whose first page is empty.
#[test]
fn memory_that_children_are_not_to_have_is_not_theirs() {
    let here = "here 1 1 1\n";
    says("wiped", &format!("child 7, {here}late 0\nchild 11, {here}"));
    says("advised", "late 0\nchild 1, here 1\n");
}

/// Workers that have ended are reaped when the next thread is isolated or forks.
#[test]
fn a_fork_leaves_no_workers_behind() {
    says("leaves", "child 4, children 0\n");
}

/// The kernel then has no descriptor and no list of mappings to give.
#[test]
fn discarded_memory_is_empty_without_a_descriptor_too() {
    says("full", "discarded 0\nempty 1, others 1\n");
}

/// After a change of user, the program can't open the tool's files.
#[test]
fn a_program_that_drops_its_privileges_forks() {
    says("dropped", "child 6, here 1\n");
}

/// A worker's own mappings must not lie where the program's new memory is mapped, nor be merged
/// with memory that was never touched.
#[test]
fn memory_that_comes_late_is_the_same_for_isolated_threads() {
    says("late", "read 20, filled 20\n");
}

/// From then on no thread is isolated.
#[test]
fn a_timer_of_cpu_time_that_is_set_late_rings() {
    says("timer", "rings 1\n");
}

#[test]
fn handlers_that_write_while_a_fork_is_prepared_lose_nothing() {
    says("bells", "child 7, rings 1, right 1\n");
}
