//! Thread-local variables of shared libraries that threads share falsely: libraries that are
//! linked, and libraries that are loaded later, in C and C++.

use crate::support::targets::{falsely_shared, names_fields, open, side_by_side};
use crate::support::{Ended, sunder};
use std::path::{Path, PathBuf};
use std::process::Command;
use sunder_findings::{Limit, ObjectKind};

/// Builds the program and its library in `folder`. If `late`, the program loads the library itself
/// instead of being linked to it.
fn build(folder: &Path, compiler: &str, late: bool) -> (PathBuf, PathBuf) {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs");
    let library = folder.join("liblocals.so");
    let program = folder.join("locals");
    let language = if compiler == "g++" { "c++" } else { "c" };
    let mut make_library = Command::new(compiler);
    make_library
        .args(["-shared", "-fPIC", "-O1", "-g", "-x", language])
        .arg(sources.join("locals_library.c"))
        .arg("-o")
        .arg(&library);
    let mut make_program = Command::new("gcc");
    make_program
        .args(["-O1", "-g", "-pthread"])
        .arg(sources.join("locals.c"))
        .arg("-o")
        .arg(&program)
        .arg("-ldl");
    if !late {
        make_program
            .args(["-Wl,--no-as-needed", "-Wl,-rpath,$ORIGIN"])
            .arg(&library);
    }
    for command in [&mut make_library, &mut make_program] {
        let built = command.output().expect("the README names the compilers");
        let errors = String::from_utf8_lossy(&built.stderr);
        assert!(built.status.success(), "{command:?}: {errors}");
    }
    (program, library)
}

fn is_named(compiler: &str, late: bool) {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("result.json");
    let (program, library) = build(folder.path(), compiler, late);
    side_by_side(&format!("locals by {compiler}, late: {late}"), || {
        let mut command = sunder();
        command.args(["detect", "--quiet", "-o"]).arg(&file);
        command.arg("--").arg(&program).arg("200000000");
        if late {
            command.arg(&library);
        }
        let ran = command.assert().success();
        assert_eq!(ran.get_output().stdout, b"200000000 200000000\n");
        let result = open(&file)?;
        let finding = falsely_shared(&result, |f| {
            f.object.kind == ObjectKind::Tls && f.object.name.as_deref() == Some("tally")
        })?;
        let module = finding.object.module.as_deref();
        assert_eq!(module, library.to_str());
        assert!(finding.object.thread.is_some(), "{:?}", finding.object);
        names_fields(finding, &["tally.own", "tally.given"])
    });
}

#[test]
fn one_of_a_linked_library_is_named() {
    is_named("gcc", false);
}

#[test]
fn one_of_a_library_that_was_loaded_late_is_named() {
    is_named("gcc", true);
}

#[test]
fn one_of_a_cpp_library_is_named() {
    is_named("g++", true);
    is_named("g++", false);
}

#[test]
fn one_of_an_attached_process_is_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("result.json");
    let (program, library) = build(folder.path(), "gcc", true);
    side_by_side("an attached process", || {
        // The program counts for minutes; the test ends it.
        let mut command = Command::new(&program);
        command.arg("900000000000").arg(&library);
        let target = Ended::new(&mut command);
        let mut attach = sunder();
        attach.args(["attach", "--quiet", "--duration", "1s", "--pid"]);
        attach.arg(target.id()).arg("-o").arg(&file);
        attach.assert().success();
        let result = open(&file)?;
        let finding = falsely_shared(&result, |f| {
            f.object.kind == ObjectKind::Tls && f.object.name.as_deref() == Some("tally")
        })?;
        names_fields(finding, &["tally.own", "tally.given"])
    });
}

#[test]
fn one_of_a_library_that_was_removed_is_named_where_the_kernel_allows() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("result.json");
    side_by_side("a removed library", || {
        let (program, library) = build(folder.path(), "gcc", true);
        let mut command = sunder();
        command.args(["detect", "--quiet", "-o"]).arg(&file);
        let arguments = ["200000000".as_ref(), library.as_os_str(), "remove".as_ref()];
        command.arg("--").arg(&program).args(arguments);
        command.assert().success();
        assert!(!library.exists());
        let result = open(&file)?;
        let refused = |l: &Limit| l.to_string().contains("CAP_CHECKPOINT_RESTORE");
        let finding = falsely_shared(&result, |f| {
            f.object.kind == ObjectKind::Tls && f.object.name.as_deref() == Some("tally")
        });
        match finding {
            Ok(finding) => names_fields(finding, &["tally.own", "tally.given"]),
            Err(_) if result.limits.iter().any(refused) => {
                println!("SKIP: the kernel keeps removed files from us");
                Ok(())
            }
            Err(wrong) => Err(wrong),
        }
    });
}
