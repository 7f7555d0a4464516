//! Isolation under strain (`tests/programs/stress.c`): what broke SHERIFF's own sources, many
//! threads, locks, allocations, random ends, gigabytes, and signals from outside. The program
//! checks its own sums, natively and protected. Nothing is judged by time; how often a thread is
//! isolated depends on the machine.

mod support;

use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use support::limited::{can_stop_threads, output};
use support::{Ended, c_program, copy_program, plain_sunder};

fn program() -> PathBuf {
    c_program("stress", &["-w"]).expect("gcc is there")
}

fn protect(options: &[&str]) -> Command {
    let mut command = plain_sunder();
    command.arg("protect").args(options);
    command.args(["--isolate-global", "shared", "--"]);
    command
}

/// Runs the cases natively, protected, and with episodes as often as possible.
fn all_right(cases: &[&[&str]]) {
    let _alone = support::targets::alone();
    let program = program();
    for case in cases {
        let native = output(Command::new(&program).args(*case));
        assert_eq!(native.status.code(), Some(3), "{case:?}: {native:?}");
        for options in [&[][..], &["--every", "300"]] {
            let done = output(protect(options).arg(&program).args(*case));
            let said = String::from_utf8_lossy(&done.stderr);
            if !can_stop_threads(&done) {
                return;
            }
            assert_eq!(
                done.status.code(),
                Some(3),
                "{case:?} {options:?}: {done:?}"
            );
            assert_eq!(done.stdout, native.stdout, "{case:?} {options:?}: {said}");
        }
    }
}

#[test]
fn atomic_additions_are_not_lost_and_spins_end() {
    all_right(&[&["atomics"], &["flags"], &["plain"], &["trylock"]]);
}

#[test]
fn private_file_mappings_and_lists_are_whole() {
    all_right(&[&["words"], &["lists"]]);
}

#[test]
fn output_reads_and_aligned_blocks_are_right() {
    all_right(&[&["output"], &["read"], &["memalign"]]);
}

#[test]
fn locks_and_allocations_under_strain() {
    for _ in 0..3 {
        all_right(&[&["locks", "5"], &["allocations", "3"]]);
    }
}

/// More threads at once than can be isolated (`sunder_wire::isolation::SLOTS`): the others stay
/// native.
#[test]
fn five_hundred_threads_at_once() {
    all_right(&[&["many", "1", "5"]]);
}

#[test]
fn threads_that_exit_are_canceled_and_get_signals_at_random() {
    all_right(&[&["ends", "2"]]);
}

#[test]
fn gigabytes_of_heap_of_which_little_exists() {
    all_right(&[&["heap", "8"]]);
}

/// The processes that run this copy of the program, workers included.
fn running(program: &Path) -> Vec<i32> {
    let all = std::fs::read_dir("/proc").expect("it is mounted");
    all.flatten()
        .filter(|entry| {
            std::fs::read_link(entry.path().join("exe")).is_ok_and(|exe| exe == program)
        })
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect()
}

/// A copy of the program for one test alone, so that its processes can be told from those of other
/// tests; dropping it kills those that are left.
struct Copy {
    program: PathBuf,
    _folder: tempfile::TempDir,
}

impl Copy {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let program = folder.path().join("stress");
        copy_program(&self::program(), &program);
        let program = program.canonicalize().expect("it is there");
        Self {
            program,
            _folder: folder,
        }
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        for process in running(&self.program) {
            kill(process, libc::SIGKILL);
        }
    }
}

/// Waits until `done`, half a minute at most; whether it was.
fn comes(mut done: impl FnMut() -> bool) -> bool {
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(30) {
        if done() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    false
}

/// Starts the program under protection and waits until its memory is sharable. `None` where it
/// never is, as where threads can't be stopped.
fn started(program: &Path, case: &[&str], output: Stdio) -> Option<(Ended, i32)> {
    let mut command = protect(&["--quiet", "--every", "500"]);
    command.arg(program).args(case);
    // A group of its own, as a shell makes it, so that a terminal's signals reach all.
    let command = command
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(output)
        .stderr(Stdio::null());
    let _first = support::targets::before_others();
    let sunder = Ended::new(command);
    let is_shared = |process: &i32| {
        let maps = std::fs::read_to_string(format!("/proc/{process}/maps"));
        maps.is_ok_and(|maps| maps.contains("sunder-memory"))
    };
    let group = sunder.id().parse().expect("a number");
    let mut process = None;
    comes(|| {
        // Its workers are its children.
        let is_it = |process: &i32| running(program).contains(process);
        process = child_of(group).filter(is_it).filter(is_shared);
        process.is_some()
    });
    if process.is_none() {
        println!("SKIP: nobody was isolated");
    }
    Some((sunder, process?))
}

fn kill(process: i32, signal: i32) {
    // SAFETY: takes integers; the process is one that this test started.
    unsafe { libc::kill(process, signal) };
}

/// An interrupt, as from a terminal, to the tool, the program and its workers ends all.
#[test]
fn an_interrupt_leaves_nobody_behind() {
    let _alone = support::targets::alone();
    let copy = Copy::new();
    let program = copy.program.clone();
    let Some((mut sunder, _)) = started(&program, &["forever"], Stdio::null()) else {
        return;
    };
    let group: i32 = sunder.id().parse().expect("a number");
    kill(-group, libc::SIGINT);
    assert!(comes(|| sunder.child().try_wait().expect("ours").is_some()));
    let status = sunder.child().wait().expect("ours");
    // The tool dies of the same signal if it gets it after the program has ended.
    let shown = status.code().or(status.signal().map(|signal| 128 + signal));
    assert_eq!(shown, Some(130), "{status:?}");
    assert!(comes(|| running(&program).is_empty()), "orphans");
}

#[test]
fn a_program_that_is_killed_leaves_nobody_behind() {
    let _alone = support::targets::alone();
    let copy = Copy::new();
    let program = copy.program.clone();
    let Some((mut sunder, process)) = started(&program, &["forever"], Stdio::null()) else {
        return;
    };
    kill(process, libc::SIGKILL);
    assert!(comes(|| sunder.child().try_wait().expect("ours").is_some()));
    let status = sunder.child().wait().expect("ours");
    assert_eq!(status.code(), Some(137), "{status:?}");
    assert!(comes(|| running(&program).is_empty()), "orphans");
}

/// Stopped and continued again and again, as by a shell's job control.
#[test]
fn a_program_that_is_stopped_goes_on_and_is_right() {
    let _alone = support::targets::alone();
    let copy = Copy::new();
    let program = copy.program.clone();
    let started = started(&program, &["while", "1"], Stdio::piped());
    let Some((mut sunder, process)) = started else {
        return;
    };
    for _ in 0..5 {
        kill(process, libc::SIGSTOP);
        std::thread::sleep(Duration::from_millis(50));
        kill(process, libc::SIGCONT);
        std::thread::sleep(Duration::from_millis(30));
    }
    assert!(comes(|| sunder.child().try_wait().expect("ours").is_some()));
    let status = sunder.child().wait().expect("ours");
    assert_eq!(status.code(), Some(3), "{status:?}");
    let mut said = String::new();
    let mut stream = sunder.child().stdout.take().expect("piped");
    std::io::Read::read_to_string(&mut stream, &mut said).expect("text");
    assert_eq!(said, "right\n");
}

/// A worker whose thread is stopped soon stops computing.
#[test]
fn who_is_isolated_stops_with_the_program() {
    let _alone = support::targets::alone();
    let copy = Copy::new();
    let program = copy.program.clone();
    let Some((sunder, process)) = started(&program, &["forever"], Stdio::null()) else {
        return;
    };
    for _ in 0..5 {
        kill(process, libc::SIGSTOP);
        assert!(
            comes(|| running(&program) == [process]),
            "the workers go on"
        );
        kill(process, libc::SIGCONT);
        std::thread::sleep(Duration::from_millis(30));
    }
    kill(process, libc::SIGKILL);
    drop(sunder);
}

/// The program and its workers are stopped, and only the program is continued.
#[test]
fn a_program_goes_on_that_was_stopped_with_its_workers() {
    let _alone = support::targets::alone();
    let copy = Copy::new();
    let program = copy.program.clone();
    let started = started(&program, &["while", "1"], Stdio::null());
    let Some((mut sunder, process)) = started else {
        return;
    };
    for any in running(&program) {
        kill(any, libc::SIGSTOP);
    }
    std::thread::sleep(Duration::from_millis(50));
    kill(process, libc::SIGCONT);
    assert!(comes(|| running(&program).is_empty()), "it hangs");
    assert!(comes(|| sunder.child().try_wait().expect("ours").is_some()));
    let status = sunder.child().wait().expect("ours");
    assert_eq!(status.code(), Some(3), "{status:?}");
}

/// The process that `parent` has started, if there is one by now.
fn child_of(parent: i32) -> Option<i32> {
    let processes = std::fs::read_dir("/proc").expect("it is mounted").flatten();
    let mut numbers = processes.filter_map(|p| p.file_name().to_str()?.parse().ok());
    numbers.find(|number: &i32| {
        let told = std::fs::read_to_string(format!("/proc/{number}/stat"));
        // After the name, which may hold any byte: the state and the parent.
        let told = told.unwrap_or_default();
        let behind = told.rsplit(')').next().unwrap_or_default();
        behind.split_whitespace().nth(1) == Some(parent.to_string().as_str())
    })
}

/// The tool may be killed at any moment. Then the program goes on natively and is right, with two
/// exceptions: it has not been started yet, or all its threads are stopped while its memory is made
/// sharable. Then it is killed too, because its memory could be wrong.
#[test]
fn nobody_is_left_when_the_tool_is_killed_at_any_moment() {
    let _alone = support::targets::alone();
    // Orphans become our children.
    // SAFETY: integers.
    unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) };
    let copy = Copy::new();
    let program = copy.program.clone();
    let mut went_on = 0;
    for moment in (0..24).map(|i| i * i * 2 / 3) {
        let mut command = protect(&["--quiet", "--every", "500"]);
        command.arg(&program).args(["while", "1"]).process_group(0);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let mut sunder = Ended::new(command.stderr(Stdio::null()));
        let group: i32 = sunder.id().parse().expect("a number");
        std::thread::sleep(Duration::from_millis(moment));
        let programs = child_of(group);
        kill(group, libc::SIGKILL);
        let _ = sunder.child().wait();
        let mut status = 0;
        let ended = comes(|| {
            // SAFETY: the pointer to the status is valid; the group is that of our child.
            let done = unsafe { libc::waitpid(-group, &raw mut status, libc::WNOHANG) };
            let nobody = done < 0;
            if done > 0 && programs.is_some_and(|program| program != done) {
                // A worker without its thread: isolation ended as it should, or the worker was
                // killed.
                let home = libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0;
                let killed = libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGKILL;
                assert!(home || killed, "a worker: {status:#x} after {moment} ms");
            } else if done > 0 && libc::WIFEXITED(status) {
                // The program was never executed, so it has no status of its own.
                let status = libc::WEXITSTATUS(status);
                assert!(matches!(status, 3 | 127), "{status} after {moment} ms");
                went_on += i32::from(status == 3);
            } else if done > 0 {
                assert_eq!(libc::WTERMSIG(status), libc::SIGKILL, "{moment}");
            }
            nobody
        });
        kill(-group, libc::SIGKILL);
        assert!(ended, "killed after {moment} ms: somebody is left");
    }
    assert!(went_on > 0, "no program went on");
}

/// Without the tool the program goes on natively and is right, unless its memory was being made
/// sharable at that moment, as in the test above.
#[test]
fn a_program_outlives_the_tool_and_is_right() {
    let _alone = support::targets::alone();
    let program = program();
    for _ in 0..5 {
        let said = tempfile::NamedTempFile::new().expect("a file");
        let file = said.reopen().expect("the same");
        let Some((sunder, _)) = started(&program, &["while", "1"], file.into()) else {
            return;
        };
        // Workers are made only when the memory is sharable.
        comes(|| running(&program).len() != 1);
        sunder.kill(libc::SIGKILL);
        assert!(comes(|| running(&program).is_empty()), "it hangs");
        let said = std::fs::read_to_string(said.path()).expect("text");
        if said == "right\n" {
            return;
        }
        assert_eq!(said, "");
    }
    panic!("it never went on");
}
