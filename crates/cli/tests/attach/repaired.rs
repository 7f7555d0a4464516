//! `attach --repair` in programs that somebody else started. They do not notice the library's
//! coming, the moving of their bytes and the library's removal, and nothing of it is left in them.
//! A program that can't be repaired is refused in one sentence and goes on untouched.

use crate::support::confine::refuse_perf;
use crate::support::counting::Target;
use crate::support::{Ended, c_program, contention, plain_sunder, skips, sunder, targets};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;
use sunder_findings::{Findings, Repair};

/// How many runs may pass without threads running side by side before a test gives up.
const MOST_BUSY_RUNS: u32 = 8;

fn report(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("attach-{name}.json"))
}

fn repair(file: &Path) -> Repair {
    let findings = Findings::open(file).expect("a report was written");
    findings.repair.expect("it has the part")
}

/// Repairs for `duration`; what Sunder says on standard error.
fn attach(target: &Target, options: &[&str], duration: &str, file: &Path) -> String {
    let _ = std::fs::remove_file(file);
    let output = sunder()
        .args(["attach", "--repair", "--pid", &target.id(), "--duration"])
        .arg(duration)
        .args(options)
        .arg("--report")
        .arg(file)
        .output()
        .expect("sunder starts");
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{told}");
    told
}

#[test]
fn it_comes_moves_and_goes_without_a_trace() {
    let _alone = targets::alone();
    let _first = targets::before_others();
    let mut moved = 0;
    for arguments in [&[][..], &["calls"]] {
        for seed in ["1", "2", "3"] {
            let target = Target::start(arguments);
            let before = target.state();
            let file = report("traces");
            let told = attach(&target, &["--chaos", seed], "2s", &file);
            assert!(told.contains("nothing of ours is left in it"), "{told}");
            moved += repair(&file).moved.len();
            assert_eq!(target.state(), before, "{told}");
            assert!(target.code_is_its_files(), "{told}");
            let (text, good) = target.end();
            assert_eq!(text, "wrong 0\n", "{arguments:?} {seed}: {told}");
            assert!(good);
        }
    }
    // How many are moved depends on how often the tool gets a CPU.
    assert!(moved > 0);
}

/// Attaching and detaching again and again.
#[test]
fn it_may_come_again() {
    let _alone = targets::alone();
    let target = Target::start(&["calls"]);
    let before = target.state();
    for _ in 0..4 {
        let told = attach(&target, &["--chaos", "5"], "300ms", &report("again"));
        assert!(told.contains("nothing of ours is left in it"), "{told}");
        assert_eq!(target.state(), before, "{told}");
    }
    assert_eq!(target.end(), ("wrong 0\n".into(), true));
}

/// After a `kill -9` at any moment: what is left is taken out before the program is repaired again.
#[test]
fn what_a_killed_repair_has_left_is_taken_out_by_the_next() {
    const TIMES: u64 = 6;
    let _alone = targets::alone();
    let mut left = 0;
    for (arguments, of_them) in [(&["calls"][..], 0), (&[][..], 1)] {
        let target = Target::start(arguments);
        let before = target.state();
        for time in 0..TIMES {
            let mut looking = start(&target, &(time + of_them).to_string());
            // In half of the rounds the library is certainly there.
            if time % 2 == 0 {
                target.is_repaired();
            }
            std::thread::sleep(std::time::Duration::from_micros(time * 130_803 % 700_000));
            looking.kill().expect("a child of ours");
            looking.wait().expect("a child of ours");
            let told = attach(&target, &["--chaos", "5"], "200ms", &report("after"));
            assert!(told.contains("nothing of ours is left in it"), "{told}");
            let is_told = told.contains("an earlier Sunder was killed");
            assert!(is_told || time % 2 == 1, "{told}");
            left += u64::from(is_told);
            assert_eq!(target.state(), before, "{told}");
            assert!(target.code_is_its_files(), "{told}");
        }
        assert_eq!(target.end(), ("wrong 0\n".into(), true));
    }
    assert!(left >= TIMES, "{left}");
}

/// The library is in use.
#[test]
fn a_program_that_another_sunder_repairs_is_refused() {
    let _alone = targets::alone();
    let target = Target::start(&[]);
    let looking = start(&target, "1");
    target.is_repaired();
    let told = refusal(&mut plain_sunder(), &target.id());
    let at_work = format!(
        "another Sunder (process {}) is at work in process",
        looking.id()
    );
    assert!(told.contains(&at_work), "{told}");
    // SAFETY: takes two integers; the child has not been waited for.
    unsafe { libc::kill(looking.id() as i32, libc::SIGINT) };
    let seen = looking.wait_with_output().expect("sunder ends");
    let told = String::from_utf8_lossy(&seen.stderr);
    assert!(told.contains("nothing of ours is left in it"), "{told}");
    assert_eq!(target.end(), ("wrong 0\n".into(), true));
}

/// Such as a container's around Sunder alone.
#[test]
fn a_filter_around_us_is_not_taken_for_the_programs() {
    let target = Target::start(&[]);
    let mut sunder = plain_sunder();
    refuse_perf(&mut sunder, libc::EACCES);
    let told = refusal(&mut sunder, &target.id());
    assert!(told.contains("Sunder itself is confined"), "{told}");
    assert_eq!(target.end(), ("wrong 0\n".into(), true));
}

/// Not every linker writes a build ID unasked, and nothing here depends on one.
#[test]
fn programs_without_a_build_identifier_are_repaired_too() {
    let _alone = targets::alone();
    let program = c_program("attached", &["-Wl,--build-id=none"]).expect("it compiles");
    let target = Target::of(&program, &["calls"]);
    let file = report("unidentified");
    let told = attach(&target, &["--chaos", "4"], "1s", &file);
    assert!(told.contains("nothing of ours is left in it"), "{told}");
    assert_eq!(repair(&file).hindrance, None, "{told}");
    assert_eq!(target.end(), ("wrong 0\n".into(), true), "{told}");
}

#[test]
fn what_is_falsely_shared_is_moved_while_it_runs() {
    let _alone = targets::alone();
    let _first = targets::before_others();
    skips::begun();
    for _ in 0..MOST_BUSY_RUNS {
        let target = Target::start(&[]);
        let file = report("moved");
        let (cpu, begin) = (target.cpu_seconds(), Instant::now());
        let told = attach(&target, &[], "2s", &file);
        let side_by_side = target.cpu_seconds() - cpu > 1.5 * begin.elapsed().as_secs_f64();
        assert_eq!(target.end(), ("wrong 0\n".into(), true), "{told}");
        let repair = repair(&file);
        if let [moved] = &repair.moved[..] {
            assert_eq!(moved.object, "shared");
            assert_eq!(moved.groups.len(), 2, "{moved:#?}");
            return;
        }
        contention::complain_if(side_by_side, || format!("{repair:#?}"));
    }
    skips::too_busy();
    println!("SKIP: its threads did not contend side by side");
}

#[test]
fn a_dry_run_leaves_the_program_alone() {
    let _alone = targets::alone();
    let target = Target::start(&[]);
    let told = attach(&target, &["--dry-run"], "1s", &report("dry"));
    assert!(!told.contains("left in it"), "{told}");
    let done = repair(&report("dry"));
    assert!(done.dry_run);
    // Stacks are no hindrance, as the threads would be stopped.
    assert!(
        done.refused
            .iter()
            .all(|one| !one.reason.contains("threads")),
        "{done:?}"
    );
    assert!(attach(&target, &["--quiet"], "300ms", &report("quiet")).is_empty());
    assert_eq!(target.end(), ("wrong 0\n".into(), true));
}

#[test]
fn an_interrupt_ends_the_repair_and_not_the_program() {
    let _alone = targets::alone();
    let target = Target::start(&["calls"]);
    let before = target.state();
    let looking = start(&target, "9");
    target.is_repaired();
    // SAFETY: takes two integers; the child has not been waited for.
    unsafe { libc::kill(looking.id() as i32, libc::SIGINT) };
    let seen = looking.wait_with_output().expect("sunder ends");
    assert_eq!(seen.status.code(), Some(0), "{seen:?}");
    assert_eq!(target.state(), before);
    assert!(target.code_is_its_files());
    assert_eq!(target.end(), ("wrong 0\n".into(), true));
}

/// `attach --repair` that moves pages at random.
fn start(target: &Target, seed: &str) -> std::process::Child {
    plain_sunder()
        .args(["attach", "--repair", "--chaos", seed, "--pid", &target.id()])
        .stderr(Stdio::piped())
        .spawn()
        .expect("sunder starts")
}

/// A signal has stopped it, and it stays stopped: its threads only do what is needed to leave. If one of them
/// stands in our code, where it stays, the library stays with its hooks: without them bytes that are moved away
/// would be touched. When the program continues, it runs on as one that was never attached to.
#[test]
fn a_program_that_is_stopped_at_the_end_gets_its_bytes_back() {
    let _alone = targets::alone();
    for (arguments, seed) in [(&[][..], "1"), (&["calls"], "2"), (&["calls"], "3")] {
        let target = Target::start(arguments);
        let before = target.state();
        let looking = start(&target, seed);
        target.is_repaired();
        // By now some bytes may be moved away.
        std::thread::sleep(std::time::Duration::from_millis(300));
        target.stop();
        // SAFETY: takes two integers; the child has not been waited for.
        unsafe { libc::kill(looking.id() as i32, libc::SIGINT) };
        let seen = looking.wait_with_output().expect("sunder ends");
        let told = String::from_utf8_lossy(&seen.stderr);
        assert!(target.is_stopped(), "it goes on: {told}");
        if seen.status.code() == Some(0) {
            assert!(told.contains("nothing of ours is left in it"), "{told}");
            assert_eq!(target.state(), before);
            assert!(target.code_is_its_files(), "hooks are left: {told}");
        } else {
            // Threads that only count are never in our code.
            assert_eq!(arguments, ["calls"], "{told}");
            assert_eq!(seen.status.code(), Some(125), "{told}");
            assert!(told.contains("keeps our library"), "{told}");
            assert!(told.contains("it is stopped"), "{told}");
            assert!(!target.code_is_its_files(), "its hooks are gone: {told}");
        }
        target.process.kill(libc::SIGCONT);
        std::thread::sleep(std::time::Duration::from_millis(100));
        assert_eq!(target.end(), ("wrong 0\n".into(), true), "{told}");
    }
}

/// A filter of system calls may kill the program for a call that it never makes itself.
#[test]
fn a_program_that_has_confined_itself_is_made_to_call_nothing() {
    let _alone = targets::alone();
    for (how, status, wanted) in [
        ("confines", 125, "confined by seccomp meanwhile"),
        // One thread without a filter is left, and can make the calls.
        ("workers-confine", 0, "nothing of ours is left in it"),
    ] {
        let mut target = Target::start(&[how]);
        let looking = start(&target, "4");
        target.is_repaired();
        target.process.kill(libc::SIGUSR1);
        target.says("confined");
        // SAFETY: takes two integers; the child has not been waited for.
        unsafe { libc::kill(looking.id() as i32, libc::SIGINT) };
        let seen = looking.wait_with_output().expect("sunder ends");
        let told = String::from_utf8_lossy(&seen.stderr);
        assert_eq!(target.end(), ("wrong 0\n".into(), true), "{how}: {told}");
        assert_eq!(seen.status.code(), Some(status), "{how}: {told}");
        assert!(told.contains(wanted), "{how}: {told}");
    }
}

/// Stopped by Ctrl-Z: the shell has the terminal then, and the program goes on. Its threads are
/// never held for as long as the tool is stopped.
#[test]
fn a_stop_from_the_terminal_stops_sunder_and_not_the_program() {
    const TIMES: usize = 30;
    let _alone = targets::alone();
    let target = Target::start(&[]);
    // A process group whose leader's parent is in another group of the session: the kernel does
    // stop it.
    let mut sunder = plain_sunder();
    sunder.args(["attach", "--repair", "--chaos", "6", "--quiet", "--pid"]);
    let mut sunder = Ended::new(sunder.arg(target.id()).process_group(0));
    target.is_repaired();
    let is = |process: &str, state: char| {
        let text =
            std::fs::read_to_string(format!("/proc/{process}/stat")).expect("the process lives");
        text.rsplit(") ")
            .next()
            .is_some_and(|rest| rest.starts_with(state))
    };
    let id = target.id();
    for time in 0..TIMES {
        std::thread::sleep(std::time::Duration::from_millis(11));
        sunder.kill(libc::SIGTSTP);
        let begun = Instant::now();
        while !is(&sunder.id(), 'T') {
            assert!(begun.elapsed().as_secs() < 60, "it does not stop");
        }
        let threads = std::fs::read_dir(format!("/proc/{id}/task")).expect("the process lives");
        let names = threads.map(|t| t.expect("readable").file_name().into_string());
        let all_held = names
            .map(|t| format!("{id}/task/{}", t.expect("a number")))
            .all(|t| is(&t, 't'));
        sunder.kill(libc::SIGCONT);
        assert!(!all_held, "time {time}");
    }
    sunder.kill(libc::SIGINT);
    let ended = sunder.child().wait().expect("a child of ours");
    assert_eq!(ended.code(), Some(0));
    assert_eq!(target.end(), ("wrong 0\n".into(), true));
}

/// The program's own code lies far from the C library, and has no call there that must be hooked.
#[test]
fn a_program_with_calls_of_its_own_that_nobody_need_see_is_repaired() {
    let _alone = targets::alone();
    let program = c_program("attached", &["-DYIELDS"]).expect("it compiles");
    let target = Target::of(&program, &[]);
    let told = attach(&target, &["--chaos", "7"], "500ms", &report("yields"));
    assert!(told.contains("nothing of ours is left in it"), "{told}");
    assert_eq!(target.end(), ("wrong 0\n".into(), true), "{told}");
}

#[test]
fn programs_with_sequences_that_the_kernel_begins_anew_are_refused() {
    let program = c_program("attached", &["-DRESTARTS"]).expect("it compiles");
    let target = Target::of(&program, &[]);
    let told = refusal(&mut plain_sunder(), &target.id());
    assert!(told.contains("(rseq)"), "{told}");
    assert_eq!(target.end(), ("wrong 0\n".into(), true));
}

/// The one line in which Sunder refuses to repair the process. Checks the exit status as well.
fn refusal(command: &mut Command, pid: &str) -> String {
    let seen = command
        .args(["attach", "--repair", "--duration", "1s", "--pid", pid])
        .output()
        .expect("sunder starts");
    let told = String::from_utf8_lossy(&seen.stderr).into_owned();
    assert_eq!(seen.status.code(), Some(125), "{told}");
    assert_eq!(told.lines().count(), 1, "{told}");
    told
}

#[test]
fn static_programs_are_refused() {
    let Some(program) = c_program("attached", &["-static"]) else {
        return;
    };
    let target = Target::of(&program, &[]);
    let told = refusal(&mut plain_sunder(), &target.process.id());
    assert!(told.contains("statically linked"), "{told}");
    assert_eq!(target.end(), ("wrong 0\n".into(), true));
}

#[test]
fn a_traced_program_is_refused() {
    let mut target = Ended::new(Command::new("sleep").arg("600"));
    let number: i32 = target.id().parse().expect("a number");
    // SAFETY: takes integers; the child is ours.
    let seized = unsafe { libc::ptrace(libc::PTRACE_SEIZE, number, 0, 0) };
    if seized != 0 {
        println!("SKIP: ptrace is not allowed here");
        return;
    }
    let told = refusal(&mut plain_sunder(), &target.id());
    assert!(told.contains("is being traced by process"), "{told}");
    assert!(target.child().try_wait().expect("ours").is_none());
}

#[test]
fn a_stopped_program_is_refused() {
    let target = Target::start(&[]);
    target.stop();
    let told = refusal(&mut plain_sunder(), &target.id());
    assert!(told.contains("is stopped"), "{told}");
    target.process.kill(libc::SIGCONT);
    assert_eq!(target.end(), ("wrong 0\n".into(), true));
}

#[test]
fn programs_of_others_are_refused() {
    const NOBODY: u32 = 65534;
    // SAFETY: takes nothing.
    if unsafe { libc::geteuid() } != 0 {
        println!("SKIP: only root can be somebody else");
        return;
    }
    let target = Target::start(&[]);
    let folder = tempfile::tempdir().expect("a folder");
    // A folder whose files everybody may execute.
    let program = folder.path().join("sunder");
    crate::support::copy_program(Path::new(env!("CARGO_BIN_EXE_sunder")), &program);
    std::fs::set_permissions(
        folder.path(),
        std::os::unix::fs::PermissionsExt::from_mode(0o755),
    )
    .expect("ours");
    let mut command = Command::new(program);
    command.env("NO_COLOR", "1").uid(NOBODY).gid(NOBODY);
    let told = refusal(&mut command, &target.id());
    assert!(told.contains("belongs to user 0"), "{told}");
    assert_eq!(target.end(), ("wrong 0\n".into(), true));
}

#[test]
fn programs_of_32_bits_are_refused() {
    let flags = ["-m32", "-nostdlib", "-static", "-fno-pie", "-no-pie"];
    let Some(program) = c_program("narrow", &flags) else {
        return;
    };
    let Ok(child) = Command::new(program).spawn() else {
        println!("SKIP: this kernel runs no 32-bit programs");
        return;
    };
    let mut target = Ended::from(child);
    let told = refusal(&mut plain_sunder(), &target.id());
    assert!(told.contains("32-bit"), "{told}");
    assert!(target.child().try_wait().expect("ours").is_none());
}

/// Half of the work is done when the kernel refuses the rest.
#[test]
fn what_may_have_no_new_code_is_refused_and_as_it_was() {
    let target = Target::start(&["no-code"]);
    if !target.is_as_asked {
        println!("SKIP: this kernel lets memory become code always");
        return;
    }
    let maps = target.file("maps");
    let told = refusal(&mut plain_sunder(), &target.id());
    assert!(told.contains("code that is no file's"), "{told}");
    assert_eq!(target.file("maps"), maps);
    assert!(target.code_is_its_files());
    assert_eq!(target.end(), ("wrong 0\n".into(), true));
}

#[test]
fn where_there_is_no_room_near_the_c_library_nothing_is_put() {
    let target = Target::start(&["no-room"]);
    let maps = target.file("maps");
    let told = refusal(&mut plain_sunder(), &target.id());
    assert!(told.contains("no room near its C library"), "{told}");
    assert_eq!(target.file("maps"), maps);
    assert_eq!(target.end(), ("wrong 0\n".into(), true));
}

#[test]
fn a_program_that_ends_meanwhile_is_no_failure() {
    let _alone = targets::alone();
    let target = Target::start(&["calls"]);
    let looking = plain_sunder()
        .args(["attach", "--repair", "--chaos", "3", "--pid", &target.id()])
        .stderr(Stdio::piped())
        .spawn()
        .expect("sunder starts");
    crate::support::observed(looking.id(), &target.id());
    assert_eq!(target.end(), ("wrong 0\n".into(), true));
    let seen = looking.wait_with_output().expect("sunder ends by itself");
    let told = String::from_utf8_lossy(&seen.stderr);
    assert!(matches!(seen.status.code(), Some(0 | 125)), "{told}");
}
