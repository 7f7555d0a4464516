//! `sunder repair` and `protect` on programs with modules that make system calls of their own,
//! OpenMP's runtime first of all: the output is that of the program alone, whatever is moved.

use crate::support::limited::{can_stop_threads, output, status};
use crate::support::repaired::{Run, repaired, strings, until_moved};
use crate::support::{c_program, plain_sunder, targets};
use std::path::{Path, PathBuf};
use std::process::Command;
use sunder_findings::Repair;
use tempfile::TempDir;

/// `own_calls_many.c` with `own_calls_library.c`, compiled with `flags`: program and library.
fn with_library(folder: &TempDir, flags: &[&str], late: bool) -> (PathBuf, PathBuf) {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs");
    let library = folder.path().join("libown.so");
    let program = folder.path().join("own");
    let mut make_library = Command::new("gcc");
    make_library
        .args(["-shared", "-fPIC", "-O2", "-g", "-o"])
        .arg(&library)
        .args(flags)
        .arg(sources.join("own_calls_library.c"));
    let mut make_program = Command::new("gcc");
    make_program
        .args(["-O1", "-g", "-pthread", "-o"])
        .arg(&program)
        .arg(sources.join("own_calls_many.c"));
    if late {
        make_program.args(["-DLATE", "-ldl"]);
    } else {
        make_program.arg("-Wl,-rpath,$ORIGIN").arg(&library);
    }
    for command in [&mut make_library, &mut make_program] {
        let built = command.output().expect("the README names the compiler");
        let errors = String::from_utf8_lossy(&built.stderr);
        assert!(built.status.success(), "{command:?}: {errors}");
    }
    (program, library)
}

fn text(path: &Path) -> String {
    path.to_str().expect("our own path").to_owned()
}

/// Runs the program natively and with these options; both must do the same.
fn same(name: &str, options: &[&str], arguments: &[String]) -> Run {
    let mut native = Command::new(&arguments[0]);
    let native = native.args(&arguments[1..]).output().expect("it runs");
    let run = repaired(name, options, &strings(arguments));
    assert_eq!(
        String::from_utf8_lossy(&run.stdout),
        String::from_utf8_lossy(&native.stdout),
        "{name} {options:?}: {}",
        run.stderr
    );
    assert_eq!(run.status, native.status.code(), "{name}: {}", run.stderr);
    run
}

fn moves(repair: &Repair) -> usize {
    repair.moved.iter().map(|m| m.moves.len()).sum()
}

/// The reason for which nothing was moved, if there is one.
fn why(run: &Run) -> &str {
    let repair = run.repair();
    let refused = repair.refused.iter().map(|r| r.reason.as_str());
    repair
        .hindrance
        .as_deref()
        .into_iter()
        .chain(refused)
        .next()
        .unwrap_or_default()
}

/// Whether the module was refused: a preloaded library has no hooks for it. Prints a notice.
fn is_refused(run: &Run) -> bool {
    let refused = run.repair().refused.iter();
    let of_its_own = refused
        .filter(|r| r.reason.contains("kernel calls of its own"))
        .count();
    if of_its_own > 0 {
        println!("SKIP: {}", why(run));
    }
    of_its_own > 0
}

/// System calls that no function of the C library makes pass moved memory to the kernel, and
/// threads wait at moved words and are woken.
#[test]
fn calls_of_a_librarys_own_find_what_has_moved() {
    let _alone = targets::alone();
    let folder = tempfile::tempdir().expect("a folder");
    let (program, _) = with_library(&folder, &[], false);
    for seed in ["1", "2", "3"] {
        let arguments = [text(&program), "120000".into()];
        let run = same("own-calls", &["--chaos", seed], &arguments);
        assert_eq!(run.repair().hindrance, None);
        println!("moved {} times: {}", moves(run.repair()), why(&run));
    }
}

/// The program's code lies far from the C library's: the hooks of its calls lie near to its code.
#[test]
fn calls_of_a_programs_own_find_what_has_moved() {
    let _alone = targets::alone();
    let folder = tempfile::tempdir().expect("a folder");
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs");
    let program = folder.path().join("own");
    let mut make = Command::new("gcc");
    make.args(["-O2", "-g", "-pthread", "-o"]).arg(&program);
    make.args(["own_calls_many.c", "own_calls_library.c"].map(|source| sources.join(source)));
    assert!(
        make.status()
            .expect("the README names the compiler")
            .success()
    );
    for seed in ["1", "2", "3"] {
        let arguments = [text(&program), "120000".into()];
        let run = same("own-calls-program", &["--chaos", seed], &arguments);
        if !is_refused(&run) {
            assert_eq!(run.repair().hindrance, None);
            assert!(!why(&run).contains("no room"), "{}", why(&run));
        }
        println!("moved {} times: {}", moves(run.repair()), why(&run));
    }
}

/// Of pages that were mapped anew the program would get no faults any more.
#[test]
fn what_a_program_handles_the_faults_of_stays_where_it_is() {
    let _alone = targets::alone();
    let program = c_program("faults_by_file", &["-O2"]).expect("it compiles");
    let native = Command::new(&program).output().expect("it runs");
    if native.status.code() == Some(76) {
        println!("SKIP: the kernel offers no userfaultfd");
        return;
    }
    let path = text(&program);
    for options in [&[][..], &["--chaos", "1"]] {
        let run = same(
            "faults-by-file",
            options,
            &[path.clone(), "100000000".into()],
        );
        assert_eq!(moves(run.repair()), 0, "{:?}", run.repair());
        println!("{options:?}: {}", why(&run));
    }
}

/// A library is loaded after bytes have moved: they go back before, and nothing is moved any more.
#[test]
fn a_library_with_calls_of_its_own_that_comes_late_ends_it() {
    let _alone = targets::alone();
    let folder = tempfile::tempdir().expect("a folder");
    let (program, library) = with_library(&folder, &[], true);
    for seed in ["1", "2"] {
        let arguments = [text(&program), "120000".into(), text(&library)];
        let run = same("own-calls-late", &["--chaos", seed], &arguments);
        println!("moved {} times", moves(run.repair()));
    }
}

/// A system call that can't be hooked is named, and nothing is moved.
#[test]
fn a_library_one_call_of_which_cannot_be_led_through_a_hook_is_refused() {
    let _alone = targets::alone();
    let folder = tempfile::tempdir().expect("a folder");
    let (program, _) = with_library(&folder, &["-DBETWEEN"], false);
    let arguments = [text(&program), "100000".into()];
    let run = same("own-calls-refused", &["--chaos", "1"], &arguments);
    assert_eq!(moves(run.repair()), 0);
    let why = why(&run);
    assert!(
        why.contains("libown.so makes kernel calls of its own"),
        "{why}"
    );
}

#[test]
fn openmp_programs_write_what_they_write_natively() {
    let _alone = targets::alone();
    let Some(program) = c_program("openmp", &["-O2", "-fopenmp"]) else {
        return;
    };
    for (seed, threads, rounds, passes) in [
        // Threads that wait seldom, and threads that wait all the time.
        ("1", "2", "100", "1000"),
        ("2", "4", "3000", "10"),
        ("3", "3", "20000", "1"),
    ] {
        let arguments = [&*text(&program), threads, rounds, passes].map(str::to_owned);
        let run = same("openmp", &["--chaos", seed], &arguments);
        assert_eq!(run.repair().hindrance, None);
        println!("moved {} times: {}", moves(run.repair()), why(&run));
    }
}

#[test]
fn sums_of_openmp_threads_are_taken_apart() {
    let _alone = targets::alone();
    let Some(program) = c_program("openmp", &["-O2", "-fopenmp"]) else {
        return;
    };
    let arguments = |rounds: u64, passes: &str| {
        [&*text(&program), "2", &rounds.to_string(), passes].map(str::to_owned)
    };
    if is_refused(&same(
        "openmp-apart",
        &["--chaos", "1"],
        &arguments(100, "1000"),
    )) {
        return;
    }
    let run = until_moved("openmp", true, |times| {
        same("openmp-apart", &[], &arguments(10 * times, "8000"))
    });
    let Some(run) = run else { return };
    let moved = &run.repair().moved[0];
    assert_eq!(moved.object, "sum", "{moved:#?}");
    let owners: Vec<_> = moved.groups.iter().map(|g| g.threads.len()).collect();
    assert_eq!(owners, [1, 1], "{moved:#?}");
}

/// A module's own system calls do not prevent isolation if they only wait: they change no mapping
/// and make no process.
#[test]
fn openmp_programs_may_be_isolated() {
    let _alone = targets::alone();
    let Some(program) = c_program("openmp", &["-O2", "-fopenmp"]) else {
        return;
    };
    let arguments = ["2", "20", "8000"];
    let native = output(Command::new(&program).args(arguments));
    let mut sunder = plain_sunder();
    sunder.args(["protect", "--"]).arg(&program).args(arguments);
    let protected = output(&sunder);
    if !can_stop_threads(&protected) {
        return;
    }
    let said = String::from_utf8_lossy(&protected.stderr);
    assert!(!said.contains("kernel calls of its own"), "{said}");
    assert_eq!(protected.stdout, native.stdout, "{said}");
    assert_eq!(status(&protected), status(&native), "{said}");
}
