//! Data of libraries are moved as the program's own are. `library_data.c` checks that they are what
//! they must be, natively and under repair, also when the library is closed while its bytes are away.

use crate::support::built;
use crate::support::repaired::{Run, repaired, report};
use crate::support::targets;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Rounds that take half a second with false sharing.
const ROUNDS: u64 = 200_000_000;

fn compiled(name: &str, flags: &[&str]) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let program = folder.join(name);
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs");
    let mut compiler = Command::new("gcc");
    compiler.args(["-O1", "-g", "-pthread"]);
    compiler.arg(sources.join(format!("{name}.c"))).args(flags);
    built::once(&program, &mut compiler).expect("it compiles");
    program
}

fn run(case: &str, rounds: u64, options: &[&str]) -> (Run, String) {
    let library = compiled("library_data_library", &["-shared", "-fPIC"]);
    let program = compiled("library_data", &["-ldl"]);
    let [program, library] = [&program, &library].map(|path| path.to_str().expect("our own path"));
    let name = format!("library-{case}{}", options.concat());
    let rounds = rounds.to_string();
    let run = repaired(&name, options, &[program, case, &rounds, library]);
    let said = String::from_utf8_lossy(&run.stdout);
    assert_eq!(
        (said.as_ref(), run.status),
        ("wrong 0\n", Some(0)),
        "{}",
        run.stderr
    );
    (run, name)
}

#[test]
fn data_of_a_library_are_moved() {
    for (case, object) in [("here", "totals"), ("there", "zeroes")] {
        targets::side_by_side("data of a library", || {
            let (run, name) = run(case, 4 * ROUNDS, &[]);
            targets::open(&report(&name))?;
            let mut moved = run.repair().moved.iter();
            if moved.any(|moved| moved.object.contains(object)) {
                return Ok(());
            }
            Err(format!("{:#?}", run.repair()))
        });
    }
}

#[test]
fn a_library_is_closed_while_its_bytes_are_away() {
    targets::side_by_side("a library that is closed", || {
        let (run, name) = run("again", 3 * ROUNDS, &[]);
        targets::open(&report(&name))?;
        let mut moves = run.repair().moved.iter().flat_map(|moved| &moved.moves);
        let back = |reason: &str| reason == "the program changed the mapping";
        if moves.any(|one| one.rolled_back.as_ref().is_some_and(|b| back(&b.reason))) {
            return Ok(());
        }
        Err(format!("{:#?}", run.repair()))
    });
}

#[test]
fn libraries_do_not_notice_random_moves() {
    for seed in ["1", "2", "3"] {
        for case in ["here", "there", "again"] {
            run(case, ROUNDS / 4, &["--chaos", seed]);
        }
    }
}
