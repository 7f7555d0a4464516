//! `sunder trace` where the file can't grow, and the progress that it shows while it records.

use crate::support::{plain_sunder, sunder};
use std::io::{Read, Write};
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command as Plain, Output, Stdio};
use sunder_trace::{Filter, Trace, meta::State};

const SUNDER: &str = env!("CARGO_BIN_EXE_sunder");

/// Writes to addresses that no encoder predicts, then prints the sum and, if told to wait, reads
/// until its input ends.
const NOISE: &str = r#"
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>
static volatile unsigned char cells[1 << 20];
int main(int argc, char **argv) {
    uint64_t x = 88172645463325252ull, sum = 0;
    for (int i = 0; i < 400000; i++) { x ^= x << 13; x ^= x >> 7; x ^= x << 17; cells[x & 0xfffff] += x; }
    for (int i = 0; i < 1 << 20; i++) sum += cells[i];
    printf("%llu\n", (unsigned long long)sum);
    fflush(stdout);
    char byte;
    while (argc > 1 && read(0, &byte, 1) > 0);
    return 7;
}
"#;

fn build(folder: &Path) -> PathBuf {
    let (file, program) = (folder.join("noise.c"), folder.join("noise"));
    std::fs::write(&file, NOISE).expect("a file of ours");
    let mut command = sunder();
    command.args(["cc", "-O1", "-g", "-o"]).arg(&program);
    command.arg(&file).assert().success();
    program
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The program's output when it is not recorded.
fn alone(program: &Path) -> String {
    let output = Plain::new(program).output().expect("it runs");
    assert_eq!(output.status.code(), Some(7));
    text(&output.stdout)
}

/// Checks that the program went on, and that the part of the trace that was written is readable and
/// says why the rest is missing.
fn stopped(output: &Output, program: &Path, path: &Path, why: &str, errno: i32) {
    let err = text(&output.stderr);
    assert_eq!(output.status.code(), Some(7), "{err}");
    assert_eq!(text(&output.stdout), alone(program));
    let sentence = format!("is partial: recording stopped: {why}");
    assert!(err.contains(&sentence), "{err}");
    assert_eq!(err.lines().count(), 1, "{err}");
    let trace = Trace::open(path).expect("the good part");
    let progress = trace.progress().expect("it is sound");
    assert_eq!(
        (progress.state, progress.errno),
        (State::Failed, errno as u32)
    );
    let mut events = trace.events(Filter::default());
    let count = events.by_ref().count() as u64;
    assert!(count > 0);
    assert_eq!(count, progress.accesses + progress.others);
    assert_eq!(events.damaged_blocks(), 0);
    let info = sunder().args(["trace", "info"]).arg(path).output();
    let info = info.expect("it runs");
    assert!(info.status.success());
    assert!(text(&info.stderr).contains(&sentence), "{info:?}");
}

#[test]
fn where_the_file_may_not_grow_the_program_goes_on_and_the_good_part_is_kept() {
    let folder = tempfile::tempdir().expect("a folder");
    let program = build(folder.path());
    let path = folder.path().join("trace");
    let output = Plain::new("sh")
        .args(["-c", "ulimit -f 500; exec \"$0\" trace -o \"$1\" -- \"$2\""])
        .arg(SUNDER)
        .args([&path, &program])
        .output()
        .expect("a shell");
    stopped(&output, &program, &path, "File too large", libc::EFBIG);
    assert!(std::fs::metadata(&path).expect("it is there").len() <= 500 * 1024);
}

#[test]
fn where_the_disk_is_full_the_program_goes_on_and_the_good_part_is_kept() {
    let folder = tempfile::tempdir().expect("a folder");
    let program = build(folder.path());
    let (disk, kept) = (folder.path().join("disk"), folder.path().join("kept"));
    std::fs::create_dir(&disk).expect("our own folder");
    // Status 42 of the script: nothing can be mounted here.
    let script = r#"
        mount -t tmpfs -o size=500k none "$2" 2>/dev/null || exit 42
        "$1" trace -o "$2/trace" -- "$3"; status=$?
        cp "$2/trace" "$4"
        exit $status"#;
    for options in [&["-m"][..], &["-r", "-m"]] {
        let output = Plain::new("unshare")
            .args(options)
            .args(["sh", "-c", script, "sh", SUNDER])
            .args([&disk, &program, &kept])
            .output();
        let Ok(output) = output else {
            continue;
        };
        if output.status.code() == Some(42) || text(&output.stderr).contains("unshare") {
            continue;
        }
        // The message names the file by its path on the small disk.
        return stopped(
            &output,
            &program,
            &kept,
            "No space left on device",
            libc::ENOSPC,
        );
    }
    println!("SKIP: no small file system can be mounted here");
}

#[test]
fn where_not_even_the_beginning_can_be_written_that_is_the_reason_given() {
    let folder = tempfile::tempdir().expect("a folder");
    let program = build(folder.path());
    let path = folder.path().join("trace");
    let output = Plain::new("sh")
        .args(["-c", "ulimit -f 0; exec \"$0\" trace -o \"$1\" -- \"$2\""])
        .arg(SUNDER)
        .args([&path, &program])
        .output()
        .expect("a shell");
    let err = text(&output.stderr);
    assert_eq!(output.status.code(), Some(7), "{err}");
    assert_eq!(text(&output.stdout), alone(&program));
    assert!(
        err.contains("nothing was recorded: the trace can't be written: File too large"),
        "{err}"
    );
    assert!(!path.exists());
}

/// A terminal: the programs' side, and the other side, from which we read what it shows.
fn terminal() -> (OwnedFd, std::fs::File) {
    let (mut master, mut slave) = (0, 0);
    let size = libc::winsize {
        ws_row: 24,
        ws_col: 80,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    // SAFETY: the pointers to both descriptors are valid; no other value owns the descriptors.
    unsafe {
        let null = std::ptr::null_mut();
        let made = libc::openpty(
            &raw mut master,
            &raw mut slave,
            null,
            null.cast(),
            &raw const size,
        );
        assert_eq!(made, 0, "there are terminals");
        (
            OwnedFd::from_raw_fd(slave),
            std::fs::File::from_raw_fd(master),
        )
    }
}

/// What a terminal shows while the program is recorded. The program is told to end when `enough`
/// accepts the text, or after half a second.
fn shown(program: &Path, trace: &Path, options: &[&str], enough: impl Fn(&str) -> bool) -> String {
    let (slave, mut master) = terminal();
    let mut command = plain_sunder();
    command
        .arg("trace")
        .args(options)
        .arg("-o")
        .arg(trace)
        .arg("--")
        .arg(program)
        .arg("wait")
        .env("TERM", "xterm")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(slave);
    // Only the foreground of its own terminal is drawn on.
    let own = || {
        // SAFETY: both calls take numbers.
        match unsafe { libc::setsid() != -1 && libc::ioctl(2, libc::TIOCSCTTY, 0) == 0 } {
            true => Ok(()),
            false => Err(std::io::Error::last_os_error()),
        }
    };
    // SAFETY: the closure makes system calls only.
    unsafe { command.pre_exec(own) };
    let mut child = command.spawn().expect("it starts");
    drop(command);
    let (sender, receiver) = std::sync::mpsc::channel();
    let reader = std::thread::spawn(move || {
        let mut part = [0; 1024];
        // Reading from a terminal without its other side is an error.
        while let Ok(count @ 1..) = master.read(&mut part) {
            if sender.send(part[..count].to_vec()).is_err() {
                return;
            }
        }
    });
    let mut stdin = child.stdin.take().expect("a pipe");
    stdin.write_all(b"go on\n").expect("it reads");
    let mut all = Vec::new();
    let wait = std::time::Duration::from_millis(500);
    let begin = std::time::Instant::now();
    while !enough(&text(&all)) {
        // Far longer than any machine takes; a test that waits for ever would report nothing.
        assert!(begin.elapsed().as_secs() < 120, "{}", text(&all));
        match receiver.recv_timeout(wait) {
            Ok(part) => all.extend(part),
            Err(_) if options.contains(&"--quiet") => break,
            Err(std::sync::mpsc::RecvTimeoutError::Timeout) => {}
            Err(error) => panic!("{error}: {}", text(&all)),
        }
    }
    drop(stdin);
    assert_eq!(child.wait().expect("ours").code(), Some(7));
    all.extend(receiver.iter().flatten());
    reader.join().expect("it ends with the terminal");
    text(&all)
}

#[test]
fn a_terminal_sees_how_far_the_recording_is_unless_it_is_to_be_quiet() {
    let folder = tempfile::tempdir().expect("a folder");
    let program = build(folder.path());
    let trace = folder.path().join("trace");
    // Reads and writes of the loop and reads of the sum: 1.8 million events, without those that
    // are still in the buffer.
    let said = shown(&program, &trace, &[], |text| {
        text.contains("1.8 million events")
    });
    assert!(said.contains("MB, 1 thread\u{1b}"), "{said}");
    // In the end all rows scroll again, and the line is erased.
    assert!(
        said.ends_with("\u{1b}[r\u{1b}[24;1H\u{1b}[2K\u{1b}8"),
        "{said:?}"
    );
    assert_eq!(shown(&program, &trace, &["--quiet"], |_| false), "");
}
