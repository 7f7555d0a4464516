//! The target must behave as it does natively.

use crate::harness::{Waiting, folder, heap_segment, library, preload, program};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;
use sunder_access::Address;
use sunder_wire::layout::{Refusal, VERSION};
use sunder_wire::{Segment, SegmentOptions};

/// Runs `command` natively and preloaded; returns both outputs. The preloaded program must have
/// loaded the runtime.
fn both(make: impl Fn() -> Command) -> (Output, Output, Segment) {
    let run = |command: &mut Command| command.stdin(Stdio::null()).output().expect("starts");
    let segment = Segment::create(&SegmentOptions {
        heap: true,
        timer_hz: Some(1000),
        ..SegmentOptions::default()
    })
    .expect("memory file");
    let native = run(&mut make());
    let preloaded = run(preload(&mut make(), &segment));
    (native, preloaded, segment)
}

fn assert_same(make: impl Fn() -> Command) -> Segment {
    let (native, preloaded, segment) = both(&make);
    assert_eq!(preloaded, native, "{:?}", make());
    assert!(segment.status().loaded.is_some(), "{:?}", make());
    segment
}

fn shell(text: &str) -> Command {
    let mut command = Command::new("bash");
    command.args(["-c", text]);
    command
}

#[test]
fn the_environment_is_the_users() {
    assert_same(|| Command::new("env"));
    // The kernel shows zeros where the removed strings were.
    assert_same(|| shell("env; cat /proc/$$/environ | tr '\\0' '\\n' | grep ."));
}

#[test]
fn a_preload_list_of_the_user_is_restored() {
    let other = other_allocator();
    for user in ["", other.to_str().expect("text")] {
        let segment = heap_segment();
        let run = |preload: &std::ffi::OsStr| {
            let mut command = Command::new("env");
            command.env("LD_PRELOAD", preload);
            command.env_remove("SUNDER_SEGMENT");
            command
        };
        let native = run(user.as_ref()).output().expect("starts");
        let mut command = run(user.as_ref());
        for (name, value) in segment.environment(library(), Some(user.as_ref())) {
            command.env(name, value.expect("both are set"));
        }
        let preloaded = command.output().expect("starts");
        let sorted = |output: &Output| {
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
            lines.sort();
            lines
        };
        assert_eq!(sorted(&preloaded), sorted(&native));
        assert!(segment.status().loaded.is_some());
    }
}

/// An allocator in a library of its own.
fn other_allocator() -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    let build = || {
        let path = folder().join("libother.so");
        let source = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/tests/programs/other_allocator.c"
        );
        let status = Command::new("gcc")
            .args(["-O1", "-shared", "-fPIC", "-o"])
            .arg(&path)
            .arg(source)
            .status();
        assert!(status.expect("gcc runs").success());
        path
    };
    BUILT.get_or_init(build).clone()
}

#[test]
fn a_preloaded_allocator_stays_the_allocator() {
    let other = other_allocator();
    let path = program("plain");
    let segment = heap_segment();
    let mut command = Command::new(path);
    for (name, value) in segment.environment(library(), Some(other.as_os_str())) {
        command.env(name, value.expect("both are set"));
    }
    let run = Waiting::start(&mut command);
    // The other allocator returns addresses that end in 0x30.
    let block = u64::from_str_radix(&run.lines[0][2..], 16).expect("hex");
    assert_eq!(block & 0xff, 0x30);
    let found = segment.block_at(Address(block + 10)).expect("recorded");
    assert_eq!((found.span.start.0, found.span.len), (block, 40));
    run.finish();
}

#[test]
fn a_program_with_a_malloc_of_its_own_works_unrecorded() {
    let segment = heap_segment();
    let path = program("own_malloc");
    let run = Waiting::start(preload(&mut Command::new(path), &segment));
    let status = segment.status();
    assert!(status.loaded.is_some());
    assert!(!status.allocations_seen);
    run.finish();
}

#[test]
fn a_forked_child_leaves_the_parents_records_alone() {
    let segment = heap_segment();
    let run = Waiting::start(preload(&mut Command::new(program("forks")), &segment));
    assert!(run.lines.len() > 100);
    for line in &run.lines {
        let (state, address) = line.split_once(" 0x").expect("two words");
        let address = u64::from_str_radix(address, 16).expect("hex");
        let block = segment.block_at(Address(address));
        match state {
            "parent" => {
                let block = block.expect("the parent's block");
                assert!(
                    block.freed.is_none() && block.span.start.0 == address,
                    "{line}"
                );
                assert_eq!(block.thread.0, run.id());
            }
            _ => assert!(block.is_none(), "{line}: {block:?}"),
        }
    }
    run.finish();
}

#[test]
fn forks_threads_and_library_loading_at_once_do_no_harm() {
    assert_same(|| Command::new(program("storm")));
}

#[test]
fn errno_is_left_alone() {
    assert_same(|| Command::new(program("errno")));
}

#[test]
fn a_program_may_lock_its_memory() {
    let (native, preloaded, segment) = both(|| Command::new(program("locks")));
    let text = String::from_utf8_lossy(&native.stdout);
    if text.starts_with("refused") {
        println!("SKIP: this user may not lock memory: {text}");
        return;
    }
    assert_eq!(preloaded, native);
    // If it were locked as a whole, the segment would need memory for all of its bytes.
    let file = std::fs::metadata(segment.fd_path()).expect("there");
    let kept = std::os::unix::fs::MetadataExt::blocks(&file) * 512;
    assert!(
        kept < 100 << 20,
        "{kept} bytes of the segment are in memory"
    );
}

/// A call that fails leaves nothing locked, so that memory can be mapped later; one within the limit succeeds,
/// and so does a system call of the program's own.
#[test]
fn locking_all_memory_ends_as_natively() {
    for what in ["1", "8", "raw"] {
        let (native, preloaded, segment) = both(|| {
            let mut command = Command::new(program("locks_within"));
            command.arg(what);
            command
        });
        let text = String::from_utf8_lossy(&native.stdout).into_owned();
        assert!(native.status.success(), "{what}: {text}");
        // The program has some 3 MiB, and maps 2 later.
        let wanted = match what {
            "1" => "result -1, Cannot allocate memory\nsome is locked: 0\nmapped later: yes\n",
            _ => "result 0, Success\nsome is locked: 1\nmapped later: yes\n",
        };
        if what == "raw" && text.starts_with("result -1") {
            println!("SKIP: this user may not lock memory: {text}");
            continue;
        }
        assert_eq!(text, wanted, "{what}");
        assert_eq!(preloaded, native, "{what}");
        let file = std::fs::metadata(segment.fd_path()).expect("there");
        let kept = std::os::unix::fs::MetadataExt::blocks(&file) * 512;
        assert!(kept < 100 << 20, "{what}: {kept} bytes of the segment");
    }
}

#[test]
fn debian_programs_behave_as_natively() {
    let input = folder().join("input.txt");
    let text: String = (0..200_000u64)
        .map(|i| format!("{}\n", i * i % 7919))
        .collect();
    std::fs::write(&input, text).expect("writable");
    let input = input.to_str().expect("text").to_owned();
    for line in [
        format!("xz -T2 -1 -c {input} | sha256sum"),
        format!("sort -u {input} | sha256sum"),
        "python3 -c 'import threading\nt=[threading.Thread(target=lambda: sum(x*x for x in range(100000))) for _ in range(4)]\n[x.start() for x in t]; [x.join() for x in t]\nprint(len({str(i): [i]*3 for i in range(50000)}))'".into(),
        "sqlite3 :memory: 'with recursive n(i) as (select 1 union all select i+1 from n where i<50000) select count(*), sum(i*i%97) from n'".into(),
        "echo 'int main(void){return 0;}' | gcc -O2 -x c -S -o - - | sha256sum".into(),
        "for i in 1 2 3; do (exit $i); echo $?; done; x=$(seq 1000); echo ${#x}".into(),
        "perl -e 'print scalar(keys %{{map {$_=>1} 1..50000}})' 2>&1".into(),
    ] {
        assert_same(|| shell(&line));
        // The command itself must load the runtime, not only the shell.
        let first = line.split(" | ").next().unwrap_or(&line).to_owned();
        if !first.starts_with("for ") && !first.starts_with("echo ") {
            assert_same(|| shell(&format!("exec {first}")));
        }
    }
}

#[test]
fn exit_status_and_signals_are_the_targets() {
    for line in [
        "exit 7",
        "kill -TERM $$",
        "kill -KILL $$",
        "kill -SEGV $$",
        "exec /does/not/exist",
    ] {
        let (native, preloaded, _) = both(|| shell(line));
        assert_eq!(
            preloaded.status.into_raw(),
            native.status.into_raw(),
            "{line}"
        );
        assert_eq!(preloaded.stderr, native.stderr);
    }
}

#[test]
fn without_address_space_the_runtime_says_so_and_stays_passive() {
    let segment = heap_segment();
    let path = program("errno");
    let mut command = shell("ulimit -v 4000000; exec \"$0\"");
    // The shell must not be the process that loads the runtime.
    command.arg(&path);
    let variables = segment.environment(library(), None);
    let mut text = "ulimit -v 4000000; exec env".to_owned();
    for (name, value) in variables {
        let value = value.expect("both are set");
        text += &format!(" '{}={}'", name.display(), value.display());
    }
    text += &format!(" '{}'", path.display());
    let status = shell(&text).stdout(Stdio::null()).status().expect("starts");
    assert!(status.success());
    let status = segment.status();
    assert!(status.loaded.is_some());
    assert_eq!(status.refusal, Some(Refusal::AddressSpace));
}

/// A search for leaks would read all of the segment. Valgrind's own preloaded libraries are called so.
#[test]
fn under_valgrind_the_runtime_says_so_and_stays_passive() {
    let other = folder().join("vgpreload_core-amd64-linux.so");
    std::fs::copy(other_allocator(), &other).expect("copied");
    let segment = heap_segment();
    let mut command = Command::new("env");
    for (name, value) in segment.environment(library(), Some(other.as_os_str())) {
        command.env(name, value.expect("both are set"));
    }
    let status = command.stdout(Stdio::null()).status();
    assert!(status.expect("starts").success());
    let status = segment.status();
    assert!(status.loaded.is_some());
    assert_eq!(status.refusal, Some(Refusal::Valgrind));
}

#[test]
fn a_segment_of_another_version_is_refused() {
    let segment = heap_segment();
    let version = &segment.view().header().version;
    version.store(VERSION + 1, std::sync::atomic::Ordering::Relaxed);
    let status = preload(&mut Command::new(program("errno")), &segment)
        .stdout(Stdio::null())
        .status();
    assert!(status.expect("starts").success());
    assert_eq!(segment.status().refusal, Some(Refusal::Version));
}

#[test]
fn a_segment_that_is_gone_or_foreign_is_ignored() {
    let foreign = folder().join("foreign");
    std::fs::write(&foreign, [7; 100]).expect("writable");
    for path in ["/does/not/exist", foreign.to_str().expect("text"), ""] {
        let output = Command::new("env")
            .env("LD_PRELOAD", library())
            .env("SUNDER_SEGMENT", path)
            .output()
            .expect("starts");
        assert!(output.status.success());
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(!text.contains("SUNDER_SEGMENT") && !text.contains("LD_PRELOAD"));
    }
}
