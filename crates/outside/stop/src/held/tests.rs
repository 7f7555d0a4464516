//! Threads of a child are held, or all of them stopped, while it ends or executes another program.

use super::*;
use crate::thread::mortal::ALONE;
use crate::world::{World, exit};
use std::process::{Child, Command};
use std::sync::PoisonError;

/// `threads.c`, which executes itself so many times.
fn child(times: u32) -> Child {
    let folder = tempfile::tempdir().expect("a folder");
    let program = folder.path().join("threads");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/src/held/threads.c");
    let compiled = Command::new("gcc")
        .args(["-O1", "-pthread", "-o"])
        .arg(&program)
        .arg(source)
        .status()
        .expect("gcc is needed, as the README says");
    assert!(compiled.success());
    let started = Command::new(&program).arg(times.to_string()).spawn();
    // The file may go: the process executes itself by the kernel's link.
    started.expect("it was just compiled")
}

/// Calls `stop`, which stops threads of the child for a moment, again and again until the child has
/// ended; its status.
fn stopped_until_it_ends(
    child: &Child,
    stop: impl Fn(ProcessId) -> Result<(), StopError>,
) -> Option<i32> {
    let process = ProcessId(child.id());
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(60) {
        if let Some(status) = exit(process) {
            return Some(libc::WEXITSTATUS(status));
        }
        match stop(process) {
            Ok(()) | Err(StopError::NotNow | StopError::Ended) => {}
            Err(StopError::Refused(error)) => panic!("threads can't be stopped: {error}"),
        }
    }
    None
}

/// Holds these threads of the process for a millisecond.
fn hold(process: ProcessId, which: fn(ProcessId, ThreadId) -> bool) -> Result<(), StopError> {
    let mut threads = proc::threads(process).unwrap_or_default();
    threads.retain(|&thread| which(process, thread));
    let held = Held::stop(process, &threads)?;
    std::thread::sleep(Duration::from_millis(1));
    drop(held);
    Ok(())
}

#[test]
fn a_process_whose_threads_are_held_ends_with_its_status() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    for _ in 0..20 {
        let status = stopped_until_it_ends(&child(0), |process| hold(process, |_, _| true));
        assert_eq!(status, Some(7));
    }
}

#[test]
fn a_process_whose_other_threads_are_held_executes_another_program() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let others = |process: ProcessId, thread: ThreadId| thread.0 != process.0;
    let status = stopped_until_it_ends(&child(100), |process| hold(process, others));
    assert_eq!(status, Some(7));
}

/// While one of its threads is stopped, another begins to execute; ours that asks for it waits then.
#[test]
fn a_process_that_is_stopped_as_a_whole_executes_another_program() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let stop = |process| World::stop(process).map(drop);
    assert_eq!(stopped_until_it_ends(&child(300), stop), Some(7));
}

#[test]
fn a_thread_of_another_process_is_not_held() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let (mut one, mut other) = (child(1000), child(1000));
    let held = Held::stop(ProcessId(one.id()), &[ThreadId(other.id())]);
    assert_eq!(held.map(|held| held.threads().len()).ok(), Some(0));
    for child in [&mut one, &mut other] {
        child.kill().expect("it lives");
        child.wait().expect("it is ours");
    }
}
