//! A user without privileges, at the kernel's default `perf_event_paranoid` of 2, gets full results
//! on own programs; at the level 3 of some distributions, timers take the samples instead.

use crate::support::confine::{as_nobody, is_root, refuse_perf};
use crate::support::targets::{
    as_expected, build, falsely_shared, global, open, side_by_side, workload,
};
use crate::support::{c_program, plain_sunder};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use sunder_findings::{Findings, Limit, ObjectKind};
use sunder_workloads::Variant;

/// The highest level at which the kernel gives perf to everybody.
const PERF_FOR_ALL: i32 = 2;

/// A folder in which the user `nobody` may read and write, with the programs of the test.
struct UsersFolder {
    folder: tempfile::TempDir,
}

impl UsersFolder {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let place = Self { folder };
        place.open_to_all(place.folder.path(), 0o777);
        place.bring(Path::new(env!("CARGO_BIN_EXE_sunder")), "sunder");
        place
    }

    fn bring(&self, from: &Path, name: &str) -> PathBuf {
        let to = self.folder.path().join(name);
        crate::support::copy_program(from, &to);
        self.open_to_all(&to, 0o755);
        to
    }

    fn open_to_all(&self, path: &Path, mode: u32) {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("set");
    }

    /// `sunder` as the user `nobody`.
    fn sunder(&self) -> Command {
        let mut command = Command::new(self.folder.path().join("sunder"));
        command.env("NO_COLOR", "1").current_dir(self.folder.path());
        as_nobody(&mut command);
        command
    }

    /// Runs the workload `name` under `detect` as the user `nobody`; the result.
    fn detect(&self, name: &str, refused: Option<i32>) -> Result<Findings, String> {
        let program = self.bring(&build(name, Variant::Shared), name);
        let size = (2 * workload(name).size).to_string();
        let file = self.folder.path().join("result.json");
        let mut command = self.sunder();
        if let Some(errno) = refused {
            refuse_perf(&mut command, errno);
        }
        // Enough for watch bursts also in a short run on a busy machine.
        command.args(["detect", "--watch-budget", "5", "--quiet", "-o"]);
        command.arg(&file);
        let seen = command.arg("--").arg(&program).args(["2", &size]).output();
        let seen = seen.expect("sunder starts");
        let told = String::from_utf8_lossy(&seen.stderr);
        assert_eq!(seen.status.code(), Some(0), "{told}");
        assert_eq!(told, "");
        open(&file)
    }
}

/// Whether this can be tested here; prints the reason if not.
fn possible() -> bool {
    if !is_root() {
        println!("SKIP: only root can become another user");
        return false;
    }
    true
}

/// Programs that run others with fewer rights (`gosu`, `setpriv`): the loader of the next program can't open our
/// library, and would complain on the program's own standard error.
#[test]
fn a_program_that_gives_up_its_rights_hears_nothing_of_us() {
    if !possible() {
        return;
    }
    let mut all: Vec<Vec<PathBuf>> = Vec::new();
    for flags in [&[][..], &["-static"]] {
        all.extend(c_program("becomes", flags).map(|program| vec![program]));
    }
    let keeping = [
        "setpriv",
        "--reuid=65534",
        "--regid=65534",
        "--clear-groups",
    ];
    all.push(keeping.iter().map(PathBuf::from).collect());
    for program in all {
        let ran = plain_sunder()
            .args(["detect", "--quiet", "--"])
            .args(&program)
            .args(["sh", "-c", "id -u; exit 3"])
            .output()
            .expect("it runs");
        let told = String::from_utf8_lossy(&ran.stderr);
        assert_eq!(
            (told.as_ref(), ran.status.code()),
            ("", Some(3)),
            "{program:?}"
        );
        assert_eq!(ran.stdout, b"65534\n", "{program:?}");
    }
}

fn perf_for_all() -> bool {
    let level = std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid");
    let level = level.ok().and_then(|l| l.trim().parse::<i32>().ok());
    if level.is_none_or(|l| l > PERF_FOR_ALL) {
        println!("SKIP: perf_event_paranoid is {level:?}");
        return false;
    }
    true
}

#[test]
fn own_programs_give_full_results() {
    if !possible() || !perf_for_all() {
        return;
    }
    let place = UsersFolder::new();
    for (name, kind) in [
        ("thread_stats", ObjectKind::Global),
        ("pseudo_sharing", ObjectKind::Heap),
    ] {
        side_by_side(name, || {
            let result = place.detect(name, None)?;
            assert_eq!(result.run.observer, "perf");
            assert_eq!(result.run.lost_samples, 0, "the rings are too small");
            let refused = |l: &Limit| {
                l.to_string().contains("Watchpoints") || l.to_string().contains("no names")
            };
            assert!(!result.limits.iter().any(refused), "{:#?}", result.limits);
            let finding = falsely_shared(&result, |f| f.object.kind == kind)?;
            as_expected(finding, name)?;
            if !finding.confirmed || result.run.watched_accesses == 0 {
                return Err("watchpoints did not confirm it".into());
            }
            Ok(())
        });
    }
}

#[test]
fn a_running_program_of_the_same_user_can_be_looked_at() {
    if !possible() || !perf_for_all() {
        return;
    }
    let place = UsersFolder::new();
    let program = place.bring(&build("thread_stats", Variant::Shared), "thread_stats");
    side_by_side("attach", || {
        let mut target = Command::new(&program);
        target.args(["2", "8000000000"]);
        as_nobody(&mut target);
        let target = crate::support::Ended::new(&mut target);
        let file = place.folder.path().join("attached.json");
        let seen = place
            .sunder()
            .args([
                "attach",
                "--duration",
                "1s",
                "--quiet",
                "--pid",
                &target.id(),
            ])
            .arg("-o")
            .arg(&file)
            .output()
            .expect("sunder starts");
        let told = String::from_utf8_lossy(&seen.stderr);
        assert_eq!(seen.status.code(), Some(0), "{told}");
        drop(target);
        let result = open(&file)?;
        as_expected(falsely_shared(&result, global("stats"))?, "thread_stats")
    });
}

#[test]
fn at_level_3_timers_take_over() {
    if !possible() {
        return;
    }
    let place = UsersFolder::new();
    side_by_side("thread_stats", || {
        // The answer of the patched kernels of Debian and Ubuntu.
        let result = place.detect("thread_stats", Some(libc::EACCES))?;
        assert_eq!(result.run.observer, "timer");
        let told = |l: &Limit| l.to_string().contains("timers") && l.to_string().contains("perf");
        assert!(result.limits.iter().any(told), "{:#?}", result.limits);
        as_expected(falsely_shared(&result, global("stats"))?, "thread_stats")
    });
}

#[test]
fn a_privileged_program_runs_and_the_limit_is_told() {
    if !possible() {
        return;
    }
    let place = UsersFolder::new();
    let program = place.bring(Path::new("/bin/true"), "privileged");
    place.open_to_all(&program, 0o4755);
    for observer in ["auto", "timer"] {
        let mut command = place.sunder();
        command.args(["detect", "--observer", observer, "--"]);
        let seen = command.arg(&program).output().expect("sunder starts");
        let told = String::from_utf8_lossy(&seen.stderr);
        assert_eq!(seen.status.code(), Some(0), "{told}");
        assert!(told.contains("set-user-id"), "{told}");
    }
}

#[test]
fn processes_of_others_are_refused_in_one_sentence() {
    if !possible() {
        return;
    }
    let place = UsersFolder::new();
    // This test's own process belongs to root.
    let pid = std::process::id().to_string();
    let seen = place
        .sunder()
        .args(["attach", "--duration", "100ms", "--pid", &pid])
        .output()
        .expect("sunder starts");
    let told = String::from_utf8_lossy(&seen.stderr);
    assert_eq!(seen.status.code(), Some(125), "{told}");
    assert_eq!(told.lines().count(), 1, "{told}");
    assert!(told.contains(&pid), "{told}");
}
