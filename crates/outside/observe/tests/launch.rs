//! Starting programs: what the child inherits, and how failures are reported.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use sunder_access::ProcessId;
use sunder_observe::{Launch, ObserveError, proc};

/// A child that another test forks has a copy of a descriptor that this test has open for writing;
/// until the child executes its program, the file can't be executed. So the tests take turns.
fn alone() -> MutexGuard<'static, ()> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs a shell script in a launched child and returns what it wrote to $OUT.
fn output_of(script: &str) -> String {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("out");
    let prepared = Launch::new("sh")
        .arguments(["-c", script])
        .environment("OUT", Some(out.clone().into()))
        .environment("HOME", None)
        .prepare()
        .unwrap();
    let status = prepared.go().unwrap().wait().unwrap();
    assert!(status.success(), "{status}");
    fs::read_to_string(out).unwrap()
}

#[test]
fn exit_status_and_signals_come_through() {
    let _alone = alone();
    let run = |script: &str| {
        let prepared = Launch::new("sh").arguments(["-c", script]).prepare();
        prepared.unwrap().go().unwrap().wait().unwrap()
    };
    assert_eq!(run("exit 7").code(), Some(7));
    assert_eq!(run("kill -TERM $$").signal(), Some(libc::SIGTERM));
}

#[test]
fn failed_execution_is_an_error_with_its_reason() {
    let _alone = alone();
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, content: &[u8], mode| {
        let path = directory.path().join(name);
        fs::write(&path, content).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path
    };
    let plain = write("plain", b"text", 0o644);
    // An ELF header for AArch64 (machine 183).
    let mut foreign = b"\x7fELF\x02\x01\x01".to_vec();
    foreign.resize(64, 0);
    foreign[16..20].copy_from_slice(&[2, 0, 183, 0]);
    let foreign = write("foreign", &foreign, 0o755);
    for (program, errno) in [
        ("/no/such/program".into(), libc::ENOENT),
        ("no-such-program-in-path".into(), libc::ENOENT),
        (String::new(), libc::ENOENT),
        (directory.path().to_str().unwrap().to_owned(), libc::EACCES),
        (plain.to_str().unwrap().to_owned(), libc::EACCES),
        (foreign.to_str().unwrap().to_owned(), libc::ENOEXEC),
    ] {
        let prepared = Launch::new(&program).prepare().unwrap();
        let pid = prepared.pid();
        match prepared.go() {
            Err(ObserveError::Execute { source, .. }) => {
                assert_eq!(source.raw_os_error(), Some(errno), "{program}");
            }
            other => panic!("{program}: {other:?}"),
        }
        assert!(is_gone(pid), "{program} left a zombie");
    }
    assert!(matches!(
        Launch::new("true").arguments(["a\0b"]).prepare(),
        Err(ObserveError::ZeroByte(_))
    ));
}

#[test]
fn a_script_that_names_no_interpreter_is_the_shells() {
    let _alone = alone();
    let directory = tempfile::tempdir().unwrap();
    let script = directory.path().join("script");
    fs::write(&script, "[ \"$1\" = 'a b' ] && [ $# = 2 ] && exit 6\n").unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    let prepared = Launch::new(&script).arguments(["a b", "c"]).prepare();
    let status = prepared.unwrap().go().unwrap().wait().unwrap();
    assert_eq!(status.code(), Some(6));
}

/// Whether there is no process of this number, not even a zombie.
fn is_gone(pid: ProcessId) -> bool {
    matches!(proc::status(pid), Err(ObserveError::NoSuchProcess(_)))
}

#[test]
fn a_child_that_is_not_let_go_ends_and_leaves_nothing() {
    let _alone = alone();
    let prepared = Launch::new("true").prepare().unwrap();
    let pid = prepared.pid();
    assert!(proc::is_alive(pid));
    drop(prepared);
    assert!(is_gone(pid));
}

#[test]
fn the_child_has_the_environment_arguments_and_group_of_a_plain_one() {
    let _alone = alone();
    let seen = output_of(
        r#"echo "${HOME-none} $0 $(ps -o pgid= -p $$ 2>/dev/null || cut -d' ' -f5 /proc/$$/stat)" > $OUT"#,
    );
    let fields: Vec<&str> = seen.split_whitespace().collect();
    // SAFETY: no preconditions.
    let group = unsafe { libc::getpgrp() }.to_string();
    assert_eq!(fields, ["none", "sh", &group]);
}

/// SIGPIPE, which the Rust runtime ignores, has its original disposition in the child. No handler,
/// mask or descriptor of this process reaches it.
#[test]
fn the_child_has_the_signals_and_descriptors_of_a_plain_one() {
    let _alone = alone();
    // SAFETY: blocks a signal in this thread only, and nothing is sent.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, libc::SIGUSR2);
        libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
    }
    // `exec` without a shell's own handlers: cat shows its own state.
    let seen = output_of("exec cat /proc/self/status > $OUT");
    let mask = |name: &str| {
        let line = seen.lines().find(|line| line.starts_with(name)).unwrap();
        u64::from_str_radix(line.split_whitespace().nth(1).unwrap(), 16).unwrap()
    };
    // Cargo and the harness are themselves Rust programs, and std resets
    // SIGPIPE when it starts us; so a plain child ignores nothing of these.
    assert_eq!(mask("SigBlk") & 1 << (libc::SIGUSR2 - 1), 0);
    assert_eq!(mask("SigIgn") & 1 << (libc::SIGPIPE - 1), 0);

    let descriptors = output_of("exec ls /proc/self/fd > $OUT");
    // The descriptors that we were started with, and the one that reads the directory.
    assert_eq!(
        descriptors.split_whitespace().count(),
        inheritable_descriptors() + 1,
        "{descriptors}"
    );
}

fn inheritable_descriptors() -> usize {
    let all = fs::read_dir("/proc/self/fd").unwrap();
    all.filter(|entry| {
        let name = entry.as_ref().unwrap().file_name();
        let number = name.to_str().unwrap().parse().unwrap();
        // SAFETY: only asks; a number that is closed gives an error.
        let flags = unsafe { libc::fcntl(number, libc::F_GETFD) };
        flags >= 0 && flags & libc::FD_CLOEXEC == 0
    })
    .count()
}

/// Whether a program started others is read before it is reaped, at whatever moment it ends.
#[test]
fn whether_a_program_had_children_is_known_once_it_was_reaped() {
    let _alone = alone();
    for (script, had_children) in [("/bin/true; true", true), ("true", false)] {
        for _ in 0..20 {
            let prepared = Launch::new("sh").arguments(["-c", script]).prepare();
            let mut child = prepared.unwrap().go().unwrap();
            while child.try_wait().unwrap().is_none() {}
            assert_eq!(
                child.childrens_percent().is_some(),
                had_children,
                "{script}"
            );
        }
    }
}
