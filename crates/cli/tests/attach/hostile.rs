//! Programs of other users that want root's `attach` to do what they may not do themselves. Whatever
//! they do, nothing outside of them changes, and every run ends with a sentence.

use crate::support::confine::{as_nobody, is_root};
use crate::support::{Ended, c_program, copy_program, plain_sunder, targets};
use std::fs::Permissions;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

/// How often a race is run: the program has to hit an instant, which it did every second time when
/// files were opened again by their names.
const RACES: u32 = 10;

/// A folder that everybody may enter, with a copy of a program in it that everybody may execute.
fn everybodys(program: &Path) -> (tempfile::TempDir, std::path::PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).expect("ours");
    let copy = folder.path().join("program");
    copy_program(program, &copy);
    (folder, copy)
}

/// A program of the user `nobody` that has said that it is ready.
struct Target {
    process: Ended,
    output: BufReader<std::process::ChildStdout>,
}

impl Target {
    fn start(program: &Path, argument: &Path) -> Self {
        let mut command = Command::new(program);
        let command_line = command.arg(argument);
        command_line.stdin(Stdio::piped()).stdout(Stdio::piped());
        as_nobody(&mut command);
        let mut process = Ended::new(&mut command);
        let mut output = BufReader::new(process.child().stdout.take().expect("piped"));
        let mut line = String::new();
        output.read_line(&mut line).expect("readable");
        assert_eq!(line, "ready\n");
        Self { process, output }
    }

    /// What root's `attach` tells of it on both streams.
    fn attached(&self, duration: &str, arguments: &[&str]) -> String {
        let seen = plain_sunder()
            .args([
                "attach",
                "--pid",
                &self.process.id(),
                "--duration",
                duration,
            ])
            .args(arguments)
            .output()
            .expect("sunder starts");
        let told = [seen.stdout, seen.stderr].concat();
        let told = String::from_utf8_lossy(&told).into_owned();
        assert!(matches!(seen.status.code(), Some(0 | 125)), "{told}");
        told
    }

    /// Lets it end; what it has still written.
    fn end(mut self) -> String {
        let mut input = self.process.child().stdin.take().expect("piped");
        input.write_all(b"x").expect("it lives");
        let mut rest = String::new();
        self.output.read_to_string(&mut rest).expect("readable");
        rest
    }
}

#[test]
fn a_file_that_is_swapped_in_for_ours_is_not_written() {
    if !is_root() {
        println!("SKIP: only root can attach to another user's program");
        return;
    }
    let _alone = targets::alone();
    let (folder, program) = everybodys(&c_program("swaps", &[]).expect("it compiles"));
    let file = folder.path().join("of-root");
    std::fs::write(&file, "unchanged").expect("written");
    std::fs::set_permissions(&file, Permissions::from_mode(0o644)).expect("ours");
    for _ in 0..RACES {
        let target = Target::start(&program, &file);
        let told = target.attached("300ms", &["--repair"]);
        let now = std::fs::read(&file).expect("readable");
        assert_eq!(String::from_utf8_lossy(&now), "unchanged", "{told}");
        assert_eq!(target.end(), "wrong 0\n", "{told}");
    }
}

/// The line of a process's `status` that begins with `name`, without it.
fn status_of(process: u32, name: &str) -> Option<String> {
    let text = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    Some(line.split_whitespace().collect::<Vec<_>>().join(" "))
}

#[test]
fn roots_attach_gives_up_what_it_does_not_need() {
    if !is_root() {
        println!("SKIP: only root has rights to give up");
        return;
    }
    let _alone = targets::alone();
    let (_folder, program) = everybodys(&c_program("swaps", &[]).expect("it compiles"));
    for repair in [&[][..], &["--repair"][..]] {
        let target = Target::start(&program, &program);
        let mut command = plain_sunder();
        command.args(["attach", "--pid", &target.process.id(), "--duration", "60s"]);
        let mut attach = Ended::new(command.args(repair).stderr(Stdio::null()));
        let number = attach.child().id();
        // The filter is the last that it gives up with.
        while status_of(number, "Seccomp:").expect("it observes") != "2" {
            std::thread::yield_now();
        }
        let of = |name| status_of(number, name).expect("it observes");
        assert_eq!(of("NoNewPrivs:"), "1");
        // It stays root's process, so that its target can't end it, and opens files as nobody.
        assert_eq!(of("Uid:"), "0 0 0 65534");
        assert_eq!(of("Gid:"), "0 0 0 65534");
        assert_eq!(of("Groups:"), "");
        let left = u64::from_str_radix(&of("CapPrm:"), 16).expect("a number");
        // CAP_IPC_LOCK, CAP_SYS_PTRACE, CAP_PERFMON and CAP_CHECKPOINT_RESTORE (capabilities(7)).
        let observing = 1 << 14 | 1 << 19 | 1 << 38 | 1 << 40;
        assert_eq!(left & !observing, 0, "{left:x}");
        drop(attach);
        target.end();
    }
}

#[test]
fn no_line_of_a_file_that_only_root_may_read_is_quoted() {
    if !is_root() {
        println!("SKIP: only root can attach to another user's program");
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let secret = folder.path().join("of-root");
    std::fs::write(&secret, "a line of root's\n".repeat(40)).expect("written");
    let built = folder.path().join("built");
    targets::compile_disguised(&secret, &["-g"], &built);
    let (_folder, program) = everybodys(&built);
    // Everybody may enter the folder, so that nothing but the file's own mode protects it.
    std::fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).expect("ours");
    let result = folder.path().join("result.json");
    let output = result.to_str().expect("text");
    for (mode, is_quoted) in [(0o644, true), (0o600, false)] {
        std::fs::set_permissions(&secret, Permissions::from_mode(mode)).expect("ours");
        targets::side_by_side(&format!("mode {mode:o}"), || {
            let target = Target::start(&program, Path::new("unused"));
            target.attached("2s", &["--format", "json", "-o", output]);
            assert_eq!(target.end(), "");
            let findings = targets::open(&result)?;
            let found = targets::falsely_shared(&findings, |_| true)?;
            let text = std::fs::read_to_string(&result).map_err(|e| e.to_string())?;
            assert_eq!(text.contains("a line of root's"), is_quoted, "{found:#?}");
            Ok(())
        });
    }
}

/// What the program `hostile` can do, and what it exits with if it lives to its end.
const KINDS: [&str; 8] = [
    "names",
    "files",
    "changes",
    "threads",
    "tracer",
    "filter",
    "scribble",
    "descriptors",
];
const LIVED: i32 = 7;

/// The commands that start a program.
const STARTING: [&[&str]; 7] = [
    &["detect", "-o", "FILE"],
    &["detect", "--observer", "timer", "-o", "FILE"],
    &["detect", "--observer", "isolate", "-o", "FILE"],
    &["run"],
    &["repair"],
    &["protect"],
    &["protect", "--eager"],
];
const ATTACHING: [&[&str]; 2] = [&["attach", "-o", "FILE"], &["attach", "--repair"]];

/// Whether a text has what commands a terminal, or turns what follows.
fn commands_a_terminal(text: &[u8]) -> bool {
    let text = String::from_utf8_lossy(text);
    text.chars()
        .any(|c| c.is_control() && c != '\n' && c != '\t' || c == '\u{202e}')
}

/// A folder in which everybody may write, with a file of root's that everybody may read.
fn playground(program: &Path) -> (tempfile::TempDir, std::path::PathBuf, std::path::PathBuf) {
    let (folder, copy) = everybodys(program);
    std::fs::set_permissions(folder.path(), Permissions::from_mode(0o1777)).expect("ours");
    let file = folder.path().join("of-root");
    std::fs::write(&file, "unchanged").expect("written");
    std::fs::set_permissions(&file, Permissions::from_mode(0o644)).expect("ours");
    (folder, copy, file)
}

/// Runs one of root's commands beside the program; `who` tells of it in messages.
fn is_withstood(who: &str, command: &mut Command, file: &Path, report: &Path) -> (i32, String) {
    let _ = std::fs::remove_file(report);
    let seen = crate::support::limited::limited(command)
        .env("NO_COLOR", "1")
        .stdin(Stdio::null())
        .output()
        .expect("timeout runs");
    let told = String::from_utf8_lossy(&seen.stderr).into_owned();
    let written = std::fs::read(report).unwrap_or_default();
    for text in [&seen.stdout, &seen.stderr, &written] {
        assert!(
            !commands_a_terminal(text),
            "{who}: {}",
            String::from_utf8_lossy(text).escape_debug()
        );
    }
    assert!(!told.contains("panicked at"), "{who}: {told}");
    let now = std::fs::read(file).expect("readable");
    assert_eq!(String::from_utf8_lossy(&now), "unchanged", "{who}: {told}");
    use std::os::unix::process::ExitStatusExt;
    let died = seen.status.signal().map(|signal| 128 + signal);
    let status = died.or(seen.status.code()).expect("one of them");
    (status, told)
}

/// Each hostile program under each command of root's that starts one: it gives up root's rights
/// first, which Sunder keeps.
#[test]
fn hostile_programs_that_root_starts_reach_nothing() {
    if !is_root() {
        println!("SKIP: only root has rights that a program can give up");
        return;
    }
    let _alone = targets::alone();
    let program = c_program("hostile", &[]).expect("it compiles");
    for kind in KINDS {
        for words in STARTING {
            let (folder, program, file) = playground(&program);
            let report = folder.path().join("report");
            let mut command = Command::new(plain_sunder().get_program());
            for word in words {
                match *word {
                    "FILE" => command.arg(&report),
                    word => command.arg(word),
                };
            }
            command.arg("--").arg(&program).args([kind, "300"]);
            let who = format!("{kind} under {words:?}");
            let (status, told) = is_withstood(&who, command.arg(folder.path()), &file, &report);
            // A program that writes over what is in it may end itself; and a filter is the program's
            // own, under which what is in it may make a call.
            let may_die = kind == "scribble" || kind == "filter";
            let right = status == LIVED || may_die && status > 128 && !told.is_empty();
            assert!(right, "{who}: {status}: {told}");
        }
    }
}

/// Each hostile program of another user beside root's `attach`.
#[test]
fn hostile_programs_that_root_attaches_to_reach_nothing() {
    if !is_root() {
        println!("SKIP: only root can attach to another user's program");
        return;
    }
    let _alone = targets::alone();
    let program = c_program("hostile", &[]).expect("it compiles");
    for kind in KINDS {
        for words in ATTACHING {
            let (folder, program, file) = playground(&program);
            let report = folder.path().join("report");
            let mut target = Command::new(&program);
            target.args([kind, "20000"]).arg(folder.path());
            as_nobody(&mut target);
            let target = Ended::new(&mut target);
            std::thread::sleep(std::time::Duration::from_millis(50));
            let mut command = Command::new(plain_sunder().get_program());
            for word in words {
                match *word {
                    "FILE" => command.arg(&report),
                    word => command.arg(word),
                };
            }
            command.args(["--duration", "300ms", "--pid", &target.id()]);
            let who = format!("{kind} beside {words:?}");
            let (status, told) = is_withstood(&who, &mut command, &file, &report);
            let right = status == 0 || status == 125 && told.contains("sunder: ");
            assert!(right, "{who}: {status}: {told}");
        }
    }
}
