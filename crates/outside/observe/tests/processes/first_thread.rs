//! A program whose first thread has ended is alive, and its memory can be read.

use crate::support::compile;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use sunder_access::ProcessId;
use sunder_observe::proc;

#[test]
fn a_process_outlives_its_first_thread() {
    let directory = tempfile::tempdir().unwrap();
    let Some(program) = compile(directory.path(), "leader_ends", &["-O1"]) else {
        return;
    };
    let mut child = Command::new(&program)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let process = ProcessId(child.id());
    let mut line = String::new();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    output.read_line(&mut line).unwrap();
    assert_eq!(line, "alone\n");
    // The join returns when the kernel has cleared the thread's number; the thread itself ends a
    // moment later.
    while proc::status(process).unwrap().state != 'Z' {
        std::thread::yield_now();
    }

    assert!(proc::is_alive(process));
    let living = proc::living_number(process);
    assert_ne!(living, process);
    assert!(
        proc::threads(process)
            .unwrap()
            .iter()
            .any(|t| t.0 == living.0)
    );
    let executable = program.canonicalize().unwrap();
    assert_eq!(proc::executable(process).unwrap(), executable);
    let mappings = proc::mappings(process).unwrap();
    let own = mappings
        .iter()
        .find(|m| executable.to_str() == Some(m.path.as_str()));
    assert!(own.is_some_and(|m| m.is_file()));

    drop(child.stdin.take());
    child.wait().unwrap();
    assert!(!proc::is_alive(process));
}
