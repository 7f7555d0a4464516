//! `sunder run`: its heap keeps objects of the program apart, and nothing else changes. Judged by
//! addresses, never by time.

mod support;

use assert_cmd::Command;
use std::path::{Path, PathBuf};
use sunder_findings::{Finding, Findings, Frame, Object, ObjectKind, Program};

fn folder() -> &'static Path {
    Path::new(env!("CARGO_TARGET_TMPDIR"))
}

fn compiled(name: &str, arguments: &[&str]) -> PathBuf {
    let arguments_in_name = arguments.concat().replace(['/', '='], "-");
    let program = folder().join(format!("run-{name}{arguments_in_name}"));
    let source = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/programs")
        .join(format!("{name}.c"));
    let mut compiler = std::process::Command::new("gcc");
    compiler.args(["-O1", "-g", "-pthread"]).args(arguments);
    support::built::once(&program, compiler.arg(source)).expect("it compiles");
    program
}

fn sunder() -> Command {
    Command::cargo_bin("sunder").expect("it is built")
}

/// A result with one heap object, allocated by a call that returns to `offset`.
fn result(name: &str, program: &Path, offset: &str) -> PathBuf {
    result_with(name, program, &[("ask", offset)])
}

/// A result with one heap object, allocated by these functions, the innermost first.
fn result_with(name: &str, program: &Path, stack: &[(&str, &str)]) -> PathBuf {
    let path = program.to_str().expect("our own path").to_owned();
    let allocation = stack.iter().map(|(function, offset)| Frame {
        function: (*function).into(),
        module: Some(path.clone()),
        offset: Some(offset.parse().expect("an address")),
        ..Frame::default()
    });
    let findings = Findings {
        program: Program {
            path: Some(path.clone()),
            ..Program::default()
        },
        findings: vec![Finding {
            rank: 1,
            object: Object {
                kind: ObjectKind::Heap,
                allocation: allocation.collect(),
                ..Object::default()
            },
            ..Finding::default()
        }],
        ..Findings::default()
    };
    let file = folder().join(name);
    let text = serde_json::to_string(&findings).expect("a result is JSON");
    std::fs::write(&file, text).expect("our own folder");
    file
}

#[test]
fn threads_that_share_a_line_under_one_heap_do_not_under_hoard() {
    let _alone = support::targets::alone();
    let program = compiled("one_line", &[]);
    for (policy, answer) in [("general", "one line\n"), ("hoard", "apart\n")] {
        sunder()
            .args(["run", "--placement", policy, "--"])
            .arg(&program)
            .arg("threads")
            .assert()
            .success()
            .stdout(answer)
            .stderr("");
    }
}

#[test]
fn objects_of_a_saved_result_get_lines_of_their_own() {
    let _alone = support::targets::alone();
    let program = compiled("one_line", &[]);
    let program = std::fs::canonicalize(program).expect("it was just built");
    let output = std::process::Command::new(&program)
        .arg("where")
        .output()
        .expect("runs");
    let offset = String::from_utf8(output.stdout).expect("a number");
    let main = |arguments: &[&str], answer: &'static str| {
        sunder()
            .arg("run")
            .args(arguments)
            .arg("--")
            .arg(&program)
            .arg("main")
            .assert()
            .success()
            .stdout(answer)
            .stderr("");
    };
    // The blocks of one thread lie side by side, whichever threads use them later.
    main(&["--placement", "hoard"], "one line\n");
    let right = result("run-right.json", &program, offset.trim());
    main(&["--fix", right.to_str().expect("ours")], "apart\n");
    // Only call sites in the result are padded.
    let other = result("run-other.json", &program, "0x1");
    main(&["--fix", other.to_str().expect("ours")], "one line\n");
}

#[test]
fn the_programs_status_and_streams_are_its_own() {
    let _alone = support::targets::alone();
    let program = compiled("one_line", &[]);
    sunder()
        .args(["run", "--placement", "hoard", "--"])
        .arg(&program)
        .args(["threads", "7"])
        .assert()
        .code(7)
        .stderr("");
    sunder()
        .args(["run", "--placement", "sized", "--", "sh", "-c"])
        .arg("cat; echo err >&2; kill -TERM $$")
        .write_stdin("in\n")
        .assert()
        .code(143)
        .stdout("in\n")
        .stderr("err\n");
    sunder()
        .args(["run", "--placement", "hoard", "--", "no-such-program-here"])
        .assert()
        .code(127);
}

#[test]
fn hoard_is_the_policy_if_none_is_named() {
    let _alone = support::targets::alone();
    sunder()
        .args(["run", "--"])
        .arg(compiled("one_line", &[]))
        .arg("threads")
        .assert()
        .success()
        .stdout("apart\n");
}

/// How many processes have this in their environment.
fn left_behind(mark: &str) -> usize {
    let processes = std::fs::read_dir("/proc").expect("it is mounted").flatten();
    processes
        .filter(|p| {
            std::fs::read(p.path().join("environ"))
                .is_ok_and(|all| all.windows(mark.len()).any(|part| part == mark.as_bytes()))
        })
        .count()
}

#[test]
fn what_the_program_leaves_behind_still_finds_the_heap() {
    let _alone = support::targets::alone();
    let here = folder().join("run-here");
    let path = here.to_str().expect("ours");
    let made = std::process::Command::new("mkfifo").arg(&here).status();
    assert!(made.expect("mkfifo runs").success() || here.exists());
    // The background job waits until `sunder run` has ended, and then executes a program.
    let script = format!("(read go < {path}; /bin/echo late) & echo early");
    let mark = format!("SUNDER_TEST_MARK={path}");
    let mut run = std::process::Command::new(assert_cmd::cargo::cargo_bin("sunder"))
        .args(["run", "--", "sh", "-c", &script])
        .env("SUNDER_TEST_MARK", path)
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .expect("starts");
    assert!(run.wait().expect("ends").success());
    std::fs::write(&here, "go\n").expect("the job reads the pipe");
    // All ends of the pipes are closed when the job has ended.
    let output = run.wait_with_output().expect("ends");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "early\nlate\n");
    // The keeper of the files ends too, after its next check.
    let end = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while left_behind(&mark) > 0 {
        assert!(
            std::time::Instant::now() < end,
            "the keeper of the files does not end"
        );
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let _ = std::fs::remove_file(&here);
}

#[test]
fn what_cannot_be_given_a_heap_runs_natively() {
    let _alone = support::targets::alone();
    let program = compiled("static", &["-static"]);
    let output = sunder()
        .args(["run", "--placement", "hoard", "--"])
        .arg(&program)
        .output()
        .expect("runs");
    assert!(output.status.success());
    assert_eq!(output.stdout, b"checksum 400000000\n");
    assert_eq!(
        String::from_utf8_lossy(&output.stderr),
        "sunder: the program runs natively: it is statically linked\n"
    );
}

/// The shell and `env` have the heap in their environment, and would hand it down. Neither the loader
/// of musl nor the runtime of the address sanitizer starts a program with it.
#[test]
fn programs_that_can_not_have_the_heap_are_started_without_it() {
    let _alone = support::targets::alone();
    const SPECS: &str = "/usr/lib/x86_64-linux-musl/musl-gcc.specs";
    let mut programs = vec![compiled("one_line", &["-fsanitize=address"])];
    if Path::new(SPECS).exists() {
        programs.push(compiled("one_line", &["-specs", SPECS]));
    } else {
        println!("SKIP: musl-gcc is not installed; setup/debian-packages installs it");
    }
    let glibc = compiled("one_line", &[]);
    for program in &programs {
        for before in [
            &["sh", "-c", "\"$0\" \"$1\" 7; exit $?"][..],
            &["sh", "-c", "exec \"$0\" \"$1\" 7"],
            &["env", "A=1"],
        ] {
            let ran = sunder()
                .args(["run", "--placement", "hoard", "--"])
                .args(before)
                .arg(program)
                .args(["threads", "7"])
                .env("ASAN_OPTIONS", "detect_leaks=0")
                .output()
                .expect("it runs");
            let said = String::from_utf8_lossy(&ran.stderr);
            assert_eq!(
                (ran.status.code(), &*said),
                (Some(7), ""),
                "{before:?} {}",
                program.display()
            );
        }
    }
    // Others that the shell starts have it, also after one that can't.
    let script = "\"$1\" threads >/dev/null; \"$0\" threads";
    sunder()
        .args(["run", "--placement", "hoard", "--", "sh", "-c", script])
        .args([&glibc, &programs[0]])
        .env("ASAN_OPTIONS", "detect_leaks=0")
        .assert()
        .success()
        .stdout("apart\n")
        .stderr("");
}

/// In another root folder there is no such library, and the loader would complain.
#[test]
fn a_program_in_another_root_folder_is_started_without_the_heap() {
    if !support::confine::is_root() {
        println!("SKIP: only root may change the root folder");
        return;
    }
    let _alone = support::targets::alone();
    let root = tempfile::tempdir().expect("a folder");
    let program = compiled("one_line", &[]);
    let libraries = [
        "/lib64/ld-linux-x86-64.so.2",
        "/lib/x86_64-linux-gnu/libc.so.6",
    ];
    if !libraries.iter().all(|file| Path::new(file).exists()) {
        println!("SKIP: the C library is elsewhere on this system");
        return;
    }
    let place = |file: &Path, to: &str| {
        let to = root.path().join(to.trim_start_matches('/'));
        std::fs::create_dir_all(to.parent().expect("below the folder")).expect("made");
        std::fs::copy(file, to).expect("copied");
    };
    libraries
        .iter()
        .for_each(|file| place(Path::new(file), file));
    place(&program, "/program");
    let ran = sunder()
        .args(["run", "--placement", "hoard", "--", "chroot"])
        .arg(root.path())
        .args(["/program", "threads", "7"])
        .output()
        .expect("it runs");
    let said = String::from_utf8_lossy(&ran.stderr);
    assert_eq!((ran.status.code(), &*said), (Some(7), ""));
}

#[test]
fn a_result_without_heap_objects_is_refused_with_a_reason() {
    let empty = folder().join("run-empty.json");
    let text = serde_json::to_string(&Findings::default()).expect("a result is JSON");
    std::fs::write(&empty, text).expect("our own folder");
    let output = sunder()
        .arg("run")
        .arg("--fix")
        .arg(&empty)
        .args(["--", "true"])
        .output()
        .expect("runs");
    assert_eq!(output.status.code(), Some(125));
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("nothing to pad"), "{text}");
}

#[test]
fn of_a_wrapper_only_what_the_named_caller_got_is_padded() {
    let _alone = support::targets::alone();
    let program = compiled("wrapped", &[]);
    let program = std::fs::canonicalize(program).expect("it was just built");
    let output = std::process::Command::new(&program)
        .arg("where")
        .output()
        .expect("runs");
    let text = String::from_utf8(output.stdout).expect("numbers");
    let offsets: Vec<&str> = text.lines().collect();
    let run = |file: &Path| {
        let output = sunder()
            .arg("run")
            .arg("--fix")
            .arg(file)
            .arg("--")
            .arg(&program)
            .output()
            .expect("runs");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (text(&output.stdout), text(&output.stderr))
    };
    let names = ["xmalloc", "pool_alloc", "make"];
    let stack: Vec<(&str, &str)> = names.into_iter().zip(offsets).collect();
    let through = result_with("run-wrapped.json", &program, &stack);
    let said = (
        String::from("first apart, second one line\n"),
        String::new(),
    );
    assert_eq!(run(&through), said);
    // Without a name, the inner function itself is the call site.
    let plain = [("make", stack[0].1)];
    let plain = result_with("run-unwrapped.json", &program, &plain);
    let said = (String::from("first apart, second apart\n"), String::new());
    assert_eq!(run(&plain), said);
    // Another function in the caller's frame: the stacks do not match.
    let other = [stack[0], stack[1], ("make", "0x1")];
    let other = result_with("run-other-caller.json", &program, &other);
    let said = (
        String::from("first one line, second one line\n"),
        String::new(),
    );
    assert_eq!(run(&other), said);
}

/// From finding to fix: blocks that a wrapper allocates for two threads share a line. Under the fix
/// they do not, and the wrapper's other blocks stay as they were.
#[test]
fn what_detect_finds_behind_a_wrapper_is_apart_under_the_fix() {
    for (wrapper, arguments) in [
        ("xmalloc", &["-O2"][..]),
        ("xmalloc", &["-O0"]),
        ("strdup", &["-O2"]),
    ] {
        let program = compiled("counters", arguments);
        let program = std::fs::canonicalize(program).expect("it was just built");
        let file = folder().join("run-counters.json");
        support::targets::side_by_side(&format!("{wrapper} {arguments:?}"), || {
            let status = support::plain_sunder()
                .args(["detect", "--quiet", "-o"])
                .arg(&file)
                .arg("--")
                .arg(&program)
                .arg(wrapper)
                .stdout(std::process::Stdio::null())
                .status()
                .expect("runs");
            assert!(status.success());
            let findings = support::targets::open(&file)?;
            let heap = |f: &Finding| f.object.kind == ObjectKind::Heap;
            support::targets::falsely_shared(&findings, heap)?;
            let output = sunder()
                .arg("run")
                .arg("--fix")
                .arg(&file)
                .arg("--")
                .arg(&program)
                .arg(wrapper)
                .output()
                .expect("runs");
            let said = String::from_utf8_lossy(&output.stdout).into_owned();
            assert_eq!(said, "busy apart, idle one line\n", "{output:?}");
            Ok(())
        });
    }
}

/// The same from a trace, which is exact: C++ and Rust programs whose objects are allocated by
/// their language's library.
#[test]
fn what_a_trace_tells_of_objects_from_a_library_is_apart_under_the_fix() {
    let _alone = support::targets::alone();
    let emulator = std::process::Command::new("qemu-x86_64")
        .arg("--version")
        .output();
    if emulator.is_err() {
        println!("SKIP: qemu-x86_64 (Debian's package qemu-user) is not installed");
        return;
    }
    let programs = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs");
    let rustc = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".into());
    for (compiler, options, source, ways) in [
        (
            "g++",
            ["-g", "-O2", "-pthread"],
            "makers.cpp",
            ["new", "nothrow"],
        ),
        (
            &rustc,
            ["-g", "--edition", "2024"],
            "makers.rs",
            ["box", "vec"],
        ),
    ] {
        let program = folder().join(format!("run-{}", source.replace('.', "-")));
        let built = std::process::Command::new(compiler)
            .args(options)
            .arg("-o")
            .args([&program, &programs.join(source)])
            .status();
        assert!(built.is_ok_and(|status| status.success()), "{source}");
        let program = std::fs::canonicalize(program).expect("it was just built");
        let (trace, file) = (folder().join("run.trace"), folder().join("run-trace.json"));
        for how in ways {
            let mut record = sunder();
            record
                .args(["trace", "--via", "emulated", "-o"])
                .arg(&trace);
            // So often that the second thread begins long before the first has ended.
            record.arg("--").arg(&program).args([how, "50000"]);
            record.assert().success();
            let mut replay = sunder();
            replay.args(["simulate", "--quiet", "-o"]);
            replay.arg(&file).arg(&trace).assert().success();
            let mut fixed = sunder();
            fixed.args(["run", "--fix"]).arg(&file).arg("--");
            fixed.arg(&program).args([how, "1"]);
            let said = "busy apart, idle one line\n";
            fixed.assert().success().stdout(said).stderr("");
        }
    }
}
