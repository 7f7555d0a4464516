//! Which files of observed processes are opened, and with which rights.

use super::*;
use rustix::fs::FileType;
use std::cell::Cell;
use std::fs::Permissions;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use sunder_access::Mappings;

fn own() -> ProcessId {
    ProcessId(std::process::id())
}

/// A process that waits until it is killed.
fn waiting(command: &mut Command) -> Child {
    let none = Stdio::null;
    command
        .stdin(Stdio::piped())
        .stdout(none())
        .stderr(none())
        .spawn()
        .expect("it starts")
}

#[test]
fn only_regular_files_are_opened_and_nothing_waits() {
    let folder = tempfile::tempdir().expect("a folder");
    let fifo = folder.path().join("fifo");
    let (kind, mode) = (FileType::Fifo, Mode::from_raw_mode(0o666));
    rustix::fs::mknodat(CWD, &fifo, kind, mode, 0).expect("a pipe");
    let plain = folder.path().join("plain");
    std::fs::write(&plain, "text").expect("written");
    for files in [ForeignFiles::ours(), ForeignFiles::of(own())] {
        // Without the check, opening the pipe would wait for a writer for ever.
        assert!(files.open(&fifo).is_err());
        assert!(files.open(Path::new("/dev/tty")).is_err());
        assert!(files.open(folder.path()).is_err());
        let mut text = String::new();
        let mut file = files.open(&plain).expect("it is a regular file");
        file.read_to_string(&mut text).expect("readable");
        assert_eq!(text, "text");
        let mut names = files.names_in(folder.path(), 100).expect("readable");
        names.retain(|name| name != "." && name != "..");
        names.sort();
        assert_eq!(names, ["fifo", "plain"]);
    }
}

#[test]
fn a_file_that_only_root_may_read_is_not_opened_for_another_user() {
    if !rustix::process::geteuid().is_root() {
        println!("SKIP: only root can run a program as another user");
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let may_enter = Permissions::from_mode(0o755);
    std::fs::set_permissions(folder.path(), may_enter).expect("ours");
    let secret = folder.path().join("secret");
    std::fs::write(&secret, "secret").expect("written");
    std::fs::set_permissions(&secret, Permissions::from_mode(0o600)).expect("ours");
    let open = folder.path().join("open");
    std::fs::write(&open, "open").expect("written");
    let mut child = waiting(Command::new("cat").uid(65534).gid(65534));
    let files = ForeignFiles::of(ProcessId(child.id()));
    let refused = files.open(&secret).expect_err("nobody may not read it");
    assert_eq!(refused.kind(), ErrorKind::PermissionDenied);
    files.open(&open).expect("everybody may read it");
    files.release_if_ended();
    assert!(files.is_alive(), "what has not ended is kept");
    child.kill().expect("it lives");
    child.wait().expect("it is ours");
    files.release_if_ended();
    assert!(!files.is_alive());
    // What it was is known after its end, also if its number is another process's.
    let refused = files.open(&secret).expect_err("nobody may not read it");
    assert_eq!(refused.kind(), ErrorKind::PermissionDenied);
    files.open(&open).expect("everybody may read it");
    ForeignFiles::ours().open(&secret).expect("we may");
    ForeignFiles::of(own())
        .open(&secret)
        .expect("and so may our own program");
    let like_ours = ForeignFiles::of_all([&ForeignFiles::ours()]);
    like_ours
        .open(&secret)
        .expect("so may whoever has our rights");
    let both = [&ForeignFiles::of(own()), &files];
    let refused = ForeignFiles::of_all(both).open(&secret);
    assert!(refused.is_err(), "not all of them may");
}

/// Bazel writes `/proc/self/cwd` for the folder of a build, `-ffile-prefix-map=$PWD=.` writes `.`. Our
/// own working folder is another one, and is not looked at.
#[test]
fn relative_sources_are_looked_up_in_the_working_folder_of_the_process() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::create_dir(folder.path().join("src")).expect("made");
    let source = folder.path().join("src/a.c");
    std::fs::write(&source, "text").expect("written");
    let mut child = waiting(Command::new("cat").current_dir(folder.path()));
    let files = ForeignFiles::of(ProcessId(child.id()));
    for name in ["/proc/self/cwd/src/a.c", "./src/a.c", "src/a.c"] {
        files.open_source(Path::new(name)).expect(name);
        for others in [ForeignFiles::ours(), ForeignFiles::of(own())] {
            others
                .open_source(Path::new(name))
                .expect_err("it is not there");
        }
    }
    files.open_source(&source).expect("absolute");
    for name in ["src/a.c", "/proc/self/cwd/src/a.c"] {
        files
            .open(Path::new(name))
            .expect_err("mapped files have absolute names");
    }
    files
        .open_source(Path::new("/proc/self/cwd/../../../../proc/self/status"))
        .expect_err("it is not stored");
    child.kill().expect("it lives");
    child.wait().expect("it is ours");
    files
        .open_source(Path::new("src/a.c"))
        .expect("the folder is known after its end");
}

#[test]
fn of_a_process_that_has_gone_nothing_is_known_and_another_stands_in() {
    let mut child = waiting(Command::new("true").env_clear());
    let gone = ProcessId(child.id());
    child.wait().expect("it is ours");
    let file = tempfile::NamedTempFile::new().expect("a file");
    let alone = ForeignFiles::of(gone);
    assert!(!alone.is_alive());
    let privileged = Rights::are_privileged();
    assert_eq!(alone.open(file.path()).is_err(), privileged);
    let own = ForeignFiles::of(own());
    let like_ours = ForeignFiles::of(gone).or_those_of(Some(&own));
    like_ours.open(file.path()).expect("we may");
}

#[test]
fn mapped_files_and_the_program_itself_are_found() {
    let files = ForeignFiles::of(own());
    let all: Mappings = proc::mappings(own()).expect("readable");
    let code = all.iter().find(|m| m.is_file() && m.execute);
    let code = code.expect("a program has code");
    let inode = |file: File| file.metadata().expect("open").ino();
    let program = std::env::current_exe()
        .expect("known")
        .metadata()
        .expect("there")
        .ino();
    assert_eq!(inode(files.executable().expect("it is ours")), program);
    let mapped = files.mapped(code).expect("it is ours");
    assert!(mapped.metadata().expect("open").is_file());
}

/// A folder that everybody may enter.
fn everybodys_folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).expect("ours");
    folder
}

fn with_mode(path: &Path, mode: u32) {
    std::fs::write(path, "text").expect("written");
    std::fs::set_permissions(path, Permissions::from_mode(mode)).expect("ours");
}

#[test]
fn no_path_leads_through_what_the_kernel_says_of_us() {
    // Tests run in the folder of their package.
    let here = Path::new("Cargo.toml");
    File::open(here).expect("there");
    let folder = tempfile::tempdir().expect("a folder");
    let link = folder.path().join("link");
    symlink("/proc/self/cwd", &link).expect("made");
    let open = File::open(here).expect("there");
    let numbered = format!("/proc/self/fd/{}", open.as_raw_fd());
    let by_number = folder.path().join("by-number");
    symlink(&numbered, &by_number).expect("made");
    for files in [ForeignFiles::ours(), ForeignFiles::of(own())] {
        for path in [
            here,
            Path::new("./Cargo.toml"),
            Path::new("/proc/self/cwd/Cargo.toml"),
            &link.join("Cargo.toml"),
            Path::new(&numbered),
            &by_number,
            Path::new("/proc/self/maps"),
            Path::new("/proc/version"),
            Path::new("/sys/kernel/uevent_seqnum"),
        ] {
            let opened = files.open(path);
            assert!(opened.is_err(), "{}", path.display());
        }
        for path in ["/proc/self/cwd", "/proc/self/fd", "src", "/proc"] {
            assert!(files.names_in(Path::new(path), 100).is_err(), "{path}");
        }
        let whole = std::env::current_dir().expect("known").join(here);
        files.open(&whole).expect("it is a file like any other");
    }
}

#[test]
fn a_path_that_changes_its_meaning_between_two_rights_opens_nothing() {
    if !rustix::process::geteuid().is_root() {
        println!("SKIP: only root can run a program as another user");
        return;
    }
    let folder = everybodys_folder();
    let [before, after] = ["before", "after"].map(|name| folder.path().join(name));
    with_mode(&before, 0o644);
    with_mode(&after, 0o600);
    let mut child = waiting(Command::new("cat").uid(65534).gid(65534));
    let nobodys = ForeignFiles::of(ProcessId(child.id()));
    let both = ForeignFiles::of_all([&nobodys, &ForeignFiles::of(own())]);
    assert_eq!(both.known().rights.len(), 2);
    let times = Cell::new(0);
    let swapped = both.with_its_rights(|_| {
        let path = if times.replace(times.get() + 1) == 0 {
            &before
        } else {
            &after
        };
        File::open(path)
    });
    assert!(swapped.is_err(), "nobody may read only the first");
    assert_eq!(times.get(), 2);
    let same = both.open(&before).expect("both may read it");
    let inode = |file: &File| file.metadata().expect("open").ino();
    assert_eq!(inode(&same), inode(&File::open(&before).expect("there")));
    child.kill().expect("it lives");
    child.wait().expect("it is ours");
}

#[test]
fn capabilities_in_a_namespace_of_its_own_are_no_rights_over_files() {
    if !rustix::process::geteuid().is_root() {
        println!("SKIP: only root can run a program as another user");
        return;
    }
    let mut command = Command::new("sh");
    command.args(["-c", "read line; exec unshare --user --map-root-user cat"]);
    let mut child = waiting(command.uid(65534).gid(65534));
    let files = ForeignFiles::of(ProcessId(child.id()));
    assert!(files.is_alive());
    let folder = everybodys_folder();
    let secret = folder.path().join("secret");
    with_mode(&secret, 0o600);
    let mut input = child.stdin.take().expect("piped");
    input.write_all(b"\n").expect("it reads");
    // It is root in there once it has all capabilities.
    let begin = Instant::now();
    let is_in = || {
        let status = files.known().status();
        status.is_some_and(|status| status.bits("CapEff").is_some_and(|bits| bits != 0))
    };
    while !is_in() {
        if child.try_wait().expect("ours").is_some() || begin.elapsed() > Duration::from_secs(20) {
            println!("SKIP: users may not make namespaces here");
            let _ = child.kill();
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let known = files.notice_rights().rights.clone();
    let outside = Rights::of(&files.known().status().expect("it lives"), false);
    assert_eq!(known, [outside.expect("all fields are there")]);
    assert!(files.open(&secret).is_err());
    drop(input);
    child.wait().expect("it is ours");
}

#[test]
fn who_may_look_into_others_and_not_become_them_opens_what_is_everybodys() {
    if !rustix::process::geteuid().is_root() {
        println!("SKIP: only root can give a user capabilities");
        return;
    }
    use rustix::process::{DumpableBehavior, Gid, Uid, set_dumpable_behavior};
    use rustix::thread::{CapabilitySet, CapabilitySets};
    const ALICE: u32 = 12345;
    let folder = everybodys_folder();
    let [own_file, open] = ["own", "open"].map(|name| folder.path().join(name));
    with_mode(&own_file, 0o600);
    std::os::unix::fs::chown(&own_file, Some(ALICE), Some(ALICE)).expect("root may");
    with_mode(&open, 0o644);
    let mut others = waiting(Command::new("cat").uid(65534).gid(65534));
    let mut hers = waiting(Command::new("cat").uid(ALICE).gid(ALICE));
    let (of_others, of_hers) = (ProcessId(others.id()), ProcessId(hers.id()));
    // A thread of its own, since it does not get its rights back.
    let alice = std::thread::spawn(move || {
        rustix::thread::set_thread_groups(&[]).expect("root may");
        let (user, group) = (Uid::from_raw(ALICE), Gid::from_raw(ALICE));
        rustix::thread::set_thread_res_gid(Some(group), Some(group), Some(group)).expect("may");
        rustix::thread::set_keep_capabilities(true).expect("may");
        rustix::thread::set_thread_res_uid(Some(user), Some(user), Some(user)).expect("may");
        let left = CapabilitySet::SYS_PTRACE;
        let sets = CapabilitySets {
            effective: left,
            permitted: left,
            inheritable: CapabilitySet::empty(),
        };
        rustix::thread::set_capabilities(None, sets).expect("they are permitted");
        set_dumpable_behavior(DumpableBehavior::Dumpable).expect("our own");
        File::open(&own_file).expect("it is hers");
        let others = ForeignFiles::of(of_others);
        let refused = others.open(&own_file).expect_err("they may not read it");
        assert_eq!(refused.kind(), ErrorKind::PermissionDenied);
        others.open(&open).expect("everybody may");
        let hers = ForeignFiles::of(of_hers);
        hers.open(&own_file).expect("her own programs may");
    });
    let seen = alice.join();
    for child in [&mut others, &mut hers] {
        child.kill().expect("it lives");
        child.wait().expect("it is ours");
    }
    assert!(seen.is_ok());
}

#[test]
fn a_file_that_an_earlier_process_left_is_not_young() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = File::create(folder.path().join("perf-7.map")).expect("made");
    let files = ForeignFiles::of(ProcessId(std::process::id()));
    assert!(files.are_as_young(&file), "it was made just now");
    let long_ago = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000);
    file.set_modified(long_ago).expect("set");
    assert!(!files.are_as_young(&file));
    // Nobody knows when that process began.
    file.set_modified(std::time::SystemTime::now())
        .expect("set");
    assert!(!ForeignFiles::of(ProcessId(5_000_000)).are_as_young(&file));
}
