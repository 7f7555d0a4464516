//! What a confined process can and can't do. Confinement is for good, so each test starts its own
//! program again, confined, and that one tries.

#![expect(
    clippy::zombie_processes,
    reason = "a confined process can't wait for another; the children end with their input"
)]

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat};
use std::fs::File;
use std::io::{ErrorKind, Write};
use std::net::TcpStream;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use sunder_access::ProcessId;
use sunder_confine::{
    Work, beside, beside_all, beside_our_own, to_files, to_files_and_new_ones, to_send,
};
use sunder_observe::proc::{self, MemoryUse};

/// Names a test's second run, which is the confined one, and what it looks at.
const AGAIN: &str = "SUNDER_TEST_CONFINED";

/// The user `nobody`.
const NOBODY: u32 = 65534;

/// Runs the named test again, with `argument`; it has to pass there.
fn again(test: &str, argument: &str) {
    let own = std::env::current_exe().expect("known");
    let run = Command::new(own)
        .args([test, "--exact", "--nocapture", "--test-threads=1"])
        .env(AGAIN, argument)
        .output()
        .expect("it starts");
    let told = String::from_utf8_lossy(&run.stdout);
    let wrong = String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success(), "{told}{wrong}");
    assert!(told.contains("1 passed"), "{told}{wrong}");
}

fn argument() -> Option<String> {
    std::env::var(AGAIN).ok()
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// A process that waits for its end.
fn waiting(program: &Path, user: Option<u32>) -> Child {
    let mut command = Command::new(program);
    command.stdin(Stdio::piped()).stdout(Stdio::null());
    if let Some(user) = user {
        command.uid(user).gid(user);
    }
    command.spawn().expect("it starts")
}

/// What no confined process can do.
fn nothing_is_started_or_reached() {
    let denied = |kind: ErrorKind| assert_eq!(kind, ErrorKind::PermissionDenied);
    denied(
        Command::new("/bin/true")
            .spawn()
            .expect_err("no process")
            .kind(),
    );
    let connected = TcpStream::connect("127.0.0.1:9");
    denied(connected.expect_err("no network").kind());
    // SAFETY: takes numbers; a process that runs would not notice the signal.
    let signalled = unsafe { libc::kill(libc::getppid(), libc::SIGCONT) };
    assert_eq!(signalled, -1, "no signals to others");
    let code = libc::PROT_READ | libc::PROT_EXEC;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: asks for new memory.
    let memory = unsafe { libc::mmap(std::ptr::null_mut(), 4096, code, flags, -1, 0) };
    assert_eq!(memory, libc::MAP_FAILED, "no new code");
    let typed = b"x";
    // SAFETY: the request reads one byte from `typed`.
    let typed = unsafe { libc::ioctl(0, libc::TIOCSTI, typed.as_ptr()) };
    let error = std::io::Error::last_os_error();
    assert_eq!((typed, error.raw_os_error()), (-1, Some(libc::EPERM)));
    // SAFETY: takes numbers. A new user namespace would give all capabilities in it.
    assert_eq!(unsafe { libc::unshare(libc::CLONE_NEWUSER) }, -1);
    // A filter can't see with which flags this call opens a file.
    let (root, flags) = (Path::new("/"), OFlags::PATH);
    let opened = rustix::fs::openat2(CWD, root, flags, Mode::empty(), ResolveFlags::empty());
    opened.expect_err("no such call");
    let thread = std::thread::spawn(|| std::thread::current().id());
    thread.join().expect("threads start and end");
}

#[test]
fn a_reader_of_files_reads_and_does_nothing_else() {
    let Some(folder) = argument() else {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("old"), "text").expect("written");
        let path = folder.path().to_str().expect("a plain path");
        again("a_reader_of_files_reads_and_does_nothing_else", path);
        let mut names: Vec<_> = std::fs::read_dir(folder.path())
            .expect("readable")
            .map(|entry| entry.expect("readable").file_name())
            .collect();
        names.sort();
        assert_eq!(names, ["held", "old"]);
        let held = std::fs::read_to_string(folder.path().join("held"));
        assert_eq!(held.expect("readable"), "report");
        return;
    };
    let folder = Path::new(&folder);
    let mut held = File::create(folder.join("held")).expect("not confined yet");
    let confined = to_files();
    assert!(
        confined.calls,
        "every kernel since 3.17 has seccomp: {confined:?}"
    );
    let text = std::fs::read_to_string(folder.join("old")).expect("files can be read");
    assert_eq!(text, "text");
    held.write_all(b"report").expect("it was open before");
    held.set_len(6).expect("it was open before");
    assert!(File::create(folder.join("new")).is_err());
    assert!(
        File::options()
            .append(true)
            .open(folder.join("old"))
            .is_err()
    );
    assert!(std::fs::remove_file(folder.join("old")).is_err());
    assert!(std::fs::rename(folder.join("old"), folder.join("new")).is_err());
    let (flags, mode) = (OFlags::WRONLY | OFlags::CREATE, Mode::RWXU);
    assert!(openat(CWD, folder.join("new"), flags, mode).is_err());
    // SAFETY: takes numbers.
    let traced = unsafe { libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) };
    assert_eq!(traced, -1);
    nothing_is_started_or_reached();
}

#[test]
fn an_observer_reads_its_process_and_has_no_more_rights_than_that() {
    let Some(secret) = argument() else {
        if !is_root() {
            println!("SKIP: only root has rights to give up");
            return;
        }
        let secret = tempfile::NamedTempFile::new().expect("a file that only root may read");
        let path = secret.path().to_str().expect("a plain path");
        again(
            "an_observer_reads_its_process_and_has_no_more_rights_than_that",
            path,
        );
        return;
    };
    let mut process = waiting(Path::new("/bin/cat"), Some(NOBODY));
    File::open(&secret).expect("not confined yet");
    let confined = beside(ProcessId(process.id()), Work::Observe);
    assert!(confined.is_whole(), "{confined:?}");
    assert_eq!(confined.rights, Some(true));
    let memory = format!("/proc/{}/mem", process.id());
    File::open(&memory).expect("it is what we observe");
    assert!(File::options().write(true).open(&memory).is_err());
    let refused = File::open(&secret).expect_err("the process may not read it");
    assert_eq!(refused.kind(), ErrorKind::PermissionDenied);
    // What was given up can't be had back, though our user is still root.
    // SAFETY: these calls take numbers.
    unsafe {
        libc::setfsuid(0);
        // The C library would change all threads, of which the test's others are not confined.
        assert_eq!(libc::syscall(libc::SYS_setresuid, 0, 0, 0), -1);
    }
    assert!(File::open(&secret).is_err());
    nothing_is_started_or_reached();
    drop(process.stdin.take());
    // It can't be waited for: that is no part of observing. It ends with its input.
}

#[test]
fn a_watcher_reads_all_processes_and_forks_and_does_nothing_else() {
    let Some(file) = argument() else {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let path = file.path().to_str().expect("a plain path");
        let name = "a_watcher_reads_all_processes_and_forks_and_does_nothing_else";
        again(name, path);
        return;
    };
    let user = is_root().then_some(NOBODY);
    let mut process = waiting(Path::new("/bin/cat"), user);
    let confined = beside_all();
    assert!(confined.is_whole(), "{confined:?}");
    let memory = format!("/proc/{}/mem", process.id());
    File::open(&memory).expect("any process may be read");
    assert!(File::options().write(true).open(&memory).is_err());
    assert!(File::options().append(true).open(&file).is_err());
    nothing_is_started_or_reached();
    // SAFETY: the child only ends.
    let child = unsafe {
        match libc::fork() {
            0 => libc::_exit(i32::from(File::create(&file).is_ok())),
            child => child,
        }
    };
    let mut status = -1;
    // SAFETY: waits for our child, and writes to `status`.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0, "it is confined, too");
    drop(process.stdin.take());
}

#[test]
fn who_hands_records_on_has_no_capability_and_gets_none() {
    if !is_root() {
        println!("SKIP: only root has rights to give up");
        return;
    }
    if argument().is_none() {
        again("who_hands_records_on_has_no_capability_and_gets_none", "");
        return;
    }
    assert_eq!(to_send().rights, Some(true));
    let status = std::fs::read_to_string("/proc/thread-self/status").expect("readable");
    for set in ["CapEff:\t0", "CapPrm:\t0", "NoNewPrivs:\t1"] {
        assert!(status.contains(set), "{set}: {status}");
    }
    let empty = status
        .lines()
        .filter(|line| line.ends_with("\t0000000000000000"));
    assert!(empty.count() >= 3, "{status}");
    assert_eq!(to_send().rights, None, "nothing is left to give up");
}

#[test]
fn a_repairer_may_trace_its_process() {
    if argument().is_none() {
        again("a_repairer_may_trace_its_process", "");
        return;
    }
    let user = is_root().then_some(NOBODY);
    let mut process = waiting(Path::new("/bin/cat"), user);
    let number = process.id() as libc::pid_t;
    let confined = beside(ProcessId(process.id()), Work::Repair);
    assert!(confined.is_whole(), "{confined:?}");
    // SAFETY: these calls take numbers; the process is a child of ours.
    unsafe {
        assert_eq!(libc::ptrace(libc::PTRACE_SEIZE, number, 0, 0), 0);
        assert_eq!(libc::ptrace(libc::PTRACE_INTERRUPT, number, 0, 0), 0);
        assert_eq!(
            libc::waitpid(number, std::ptr::null_mut(), libc::__WALL),
            number
        );
        assert_eq!(libc::ptrace(libc::PTRACE_DETACH, number, 0, 0), 0);
    }
    nothing_is_started_or_reached();
    let error = || std::io::Error::last_os_error().raw_os_error();
    // SAFETY: takes numbers; the process has not been waited for.
    assert_eq!(unsafe { libc::kill(number, libc::SIGCONT) }, -1);
    drop(process.stdin.take());
    process.wait().expect("a child of ours");
    // Signal 0 says whether a process or a thread is gone; no other may be sent.
    for (signal, told) in [(0, libc::ESRCH), (libc::SIGCONT, libc::EPERM)] {
        // SAFETY: takes numbers. No process has the number, at least for a while.
        assert_eq!(unsafe { libc::kill(number, signal) }, -1);
        assert_eq!(error(), Some(told));
        // SAFETY: as above.
        let sent = unsafe { libc::syscall(libc::SYS_tgkill, number, number, signal) };
        assert_eq!((sent, error()), (-1, Some(told)));
    }
}

/// A thread that was there before the filter is confined by it as well.
#[test]
fn beside_a_program_of_ours_it_is_signalled_and_waited_for_and_nothing_else() {
    let again_as = "beside_a_program_of_ours_it_is_signalled_and_waited_for_and_nothing_else";
    let Some(argument) = argument() else {
        for work in ["observe", "repair"] {
            let file = tempfile::NamedTempFile::new().expect("a file");
            let path = file.path().to_str().expect("a plain path");
            again(again_as, &format!("{work} {path}"));
        }
        return;
    };
    let (work, file) = argument.split_once(' ').expect("both");
    let work = match work {
        "observe" => Work::Observe,
        _ => Work::Repair,
    };
    let (ask, asked) = std::sync::mpsc::channel::<()>();
    let before = std::thread::spawn(move || {
        asked.recv().expect("sent below");
        Command::new("/bin/true").spawn().expect_err("no process")
    });
    let mut process = waiting(Path::new("/bin/cat"), None);
    let number = process.id() as libc::pid_t;
    let confined = beside_our_own(ProcessId(process.id()), work);
    assert!(confined.is_whole(), "{confined:?}");
    ask.send(()).expect("it waits");
    let refused = before.join().expect("it ends");
    assert_eq!(refused.kind(), ErrorKind::PermissionDenied);
    nothing_is_started_or_reached();
    assert!(File::create(file).is_err(), "no file is written");
    let opened = File::options().read(true).write(true).open(file);
    assert_eq!(opened.is_ok(), work == Work::Repair, "{opened:?}");
    let status = std::fs::read_to_string(format!("/proc/{number}/status")).expect("it lives");
    let native = format!("/proc/{}/status", std::os::unix::process::parent_id());
    let native = std::fs::read_to_string(native).expect("readable");
    let field = |status: &str| {
        status
            .lines()
            .find(|l| l.starts_with("NoNewPrivs"))
            .map(str::to_owned)
    };
    assert_eq!(field(&status), field(&native), "it is not confined");
    let error = || std::io::Error::last_os_error().raw_os_error();
    // SAFETY: these calls take numbers. The parent is asked for, not signalled.
    unsafe {
        assert_eq!(libc::kill(libc::getppid(), 0), 0);
        let queued = libc::syscall(
            libc::SYS_rt_tgsigqueueinfo,
            number,
            number,
            libc::SIGTERM,
            0,
        );
        assert_eq!((queued, error()), (-1, Some(libc::EPERM)));
        assert_eq!(libc::kill(number, libc::SIGTERM), 0);
    }
    let ended = process.wait().expect("a child of ours");
    assert_eq!(
        std::os::unix::process::ExitStatusExt::signal(&ended),
        Some(libc::SIGTERM)
    );
}

#[test]
fn a_process_that_hides_its_memory_is_observed_all_the_same() {
    let again_as = "a_process_that_hides_its_memory_is_observed_all_the_same";
    let Some(secret) = argument() else {
        if !is_root() {
            println!("SKIP: only root can observe such a process");
            return;
        }
        let secret = tempfile::NamedTempFile::new().expect("a file that only root may read");
        again(again_as, secret.path().to_str().expect("a plain path"));
        return;
    };
    // The kernel hides the memory of a program whose file its user may execute and not read.
    let folder = tempfile::tempdir().expect("a folder");
    let program = folder.path().join("cat");
    std::fs::copy("/bin/cat", &program).expect("it is there");
    for (path, mode) in [(folder.path(), 0o711), (&program, 0o711)] {
        let mode = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(path, mode).expect("ours");
    }
    let mut process = waiting(&program, Some(NOBODY));
    let memory = format!("/proc/{}/mem", process.id());
    let owner = std::fs::metadata(&memory).expect("it lives").uid();
    assert_eq!(owner, 0, "it is hidden");
    let confined = beside(ProcessId(process.id()), Work::Observe);
    assert!(confined.is_whole(), "{confined:?}");
    assert_eq!(confined.rights, Some(true));
    let refused = File::open(&secret).expect_err("the process may not read it");
    assert_eq!(refused.kind(), ErrorKind::PermissionDenied);
    File::open(memory).expect_err("its user may not read it");
    let number = ProcessId(process.id());
    let held = proc::memory(number, MemoryUse::Read).expect("it was opened before");
    let mappings = proc::mappings(number).expect("everybody may read them");
    let stack = mappings.iter().find(|m| m.path == "[stack]");
    let top = stack.expect("it has one").span.end().0 - 8;
    let mut word = [1; 8];
    held.read_exact_at(&mut word, top).expect("it is mapped");
    assert_eq!(word, [0; 8], "the kernel ends a stack so");
    assert!(held.write_all_at(&word, top).is_err(), "only read");
    proc::memory(number, MemoryUse::Write).expect_err("it is not to be written");
    drop(process.stdin.take());
}

#[test]
fn who_makes_files_makes_new_ones_in_one_folder_and_does_nothing_else() {
    let Some(folder) = argument() else {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::create_dir(folder.path().join("inner")).expect("a folder");
        std::fs::write(folder.path().join("there"), "before").expect("written");
        let folder = folder.path().to_str().expect("text");
        return again(
            "who_makes_files_makes_new_ones_in_one_folder_and_does_nothing_else",
            folder,
        );
    };
    let folder = Path::new(&folder);
    let outside = std::env::temp_dir().join(format!("sunder-outside-{}", std::process::id()));
    let (confined, may) = to_files_and_new_ones(&folder.join("inner"));
    assert!(confined.calls);
    assert_eq!(confined.files, Some(may));
    let new = |path: &Path| File::options().write(true).create_new(true).open(path);
    let made = new(&folder.join("inner/new"));
    assert_eq!(made.is_ok(), may);
    if let Ok(mut made) = made {
        made.write_all(b"rows").expect("a file of ours");
    } else {
        println!("SKIP: no Landlock here, so no file can be made");
    }
    for path in [folder.join("beside"), outside, folder.join("there")] {
        new(&path).expect_err("only below that folder");
    }
    // Not what is there, and not without asking that it is new.
    for path in ["there", "inner/new", "inner/other"] {
        let path = folder.join(path);
        File::create(&path).expect_err("it may be there");
        File::options()
            .append(true)
            .open(&path)
            .expect_err("it is there");
        std::fs::remove_file(&path).expect_err("nothing is taken away");
    }
    assert_eq!(
        std::fs::read(folder.join("there")).expect("read"),
        b"before"
    );
    nothing_is_started_or_reached();
}
