//! The example that reads what isolated threads commit, on the example in C that says itself what is
//! isolated: two threads, each with a slot of two numbers of eight bytes.

#[path = "../examples/writeset.rs"]
mod writeset;

use std::path::Path;
use std::process::Command;

#[test]
fn the_example_finds_the_bytes_of_each_thread() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../include");
    let (program, commits) = (folder.join("slots"), folder.join("slots.commits"));
    let compiled = Command::new("gcc")
        .args(["-O1", "-pthread", "-I"])
        .arg(&include)
        .arg(include.join("example/slots.c"))
        .arg("-o")
        .arg(&program)
        .status()
        .expect("gcc is needed, as the README says");
    assert!(compiled.success());
    let done = sunder::Protect::new(&program)
        .with_commits(&commits)
        .run()
        .expect("it runs");
    assert!(done.exit.success(), "{done:?}");
    let (sets, missing) = writeset::write_sets(&commits).expect("a complete stream");
    assert_eq!(missing, 0, "two lines are not too much");
    let said = done.line.unwrap_or_default();
    if sets.is_empty() {
        // Where threads can't be stopped, and where none had a CPU for some milliseconds in a row.
        println!("SKIP: nothing was committed: {said}");
        assert!(said.contains("nobody was isolated") || said.contains("for nothing"));
        return;
    }
    assert!(sets.len() <= 2, "two threads, one line: {sets:?}");
    for written in sets.values() {
        // The first number counts to 1,000,000,000 and the second to 20,000,000: each changes its
        // lowest four bytes at most.
        let first = 0x0f0f;
        let of_first = written.bytes & !first == 0;
        let of_second = written.bytes & !(first << 16) == 0;
        assert!(of_first != of_second, "{sets:?}");
        assert!(written.commits > 0);
    }
    let mut all = sets.values();
    if let (Some(a), Some(b)) = (all.next(), all.next()) {
        assert_eq!(a.bytes & b.bytes, 0, "each thread has its own slot");
    }
}
