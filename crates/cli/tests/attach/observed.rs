//! `attach` observes a process that somebody else started. It names what can be named without
//! records of the heap, and the process does not notice.

use crate::support::targets::{
    as_expected, build, falsely_shared, global, names_fields, open, side_by_side,
};
use crate::support::{Ended, c_program, copy_program, plain_sunder, sunder};
use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use sunder_findings::{Findings, Limit, ObjectKind};
use sunder_workloads::Variant;

/// Iterations for minutes of work: the tests end these targets.
const LONG: &str = "80000000000";

fn target(name: &str, size: &str) -> Ended {
    let mut command = Command::new(build(name, Variant::Shared));
    command.args(["2", size]).stdout(Stdio::piped());
    Ended::new(&mut command)
}

fn attach(target: &Ended, duration: &str, file: &Path) -> Result<Findings, String> {
    let mut command = sunder();
    command.args([
        "attach",
        "--quiet",
        "--pid",
        &target.id(),
        "--duration",
        duration,
    ]);
    command.arg("-o").arg(file).assert().success().stderr("");
    open(file)
}

#[test]
fn a_global_is_found_with_its_fields() {
    let folder = tempfile::tempdir().expect("a folder");
    side_by_side("thread_stats", || {
        let target = target("thread_stats", LONG);
        let result = attach(&target, "1s", &folder.path().join("result.json"));
        drop(target);
        let result = result?;
        let said = |l: &Limit| {
            l.to_string()
                .contains("attached process tells nothing of its heap")
        };
        assert!(result.limits.iter().any(said), "{:#?}", result.limits);
        assert_eq!(result.program.exit, None);
        as_expected(falsely_shared(&result, global("stats"))?, "thread_stats")
    });
}

/// A copy of `sleep` with this name, started.
fn sleeper(folder: &Path, name: &str) -> Ended {
    let program = folder.join(name);
    if !program.exists() {
        copy_program(Path::new("/bin/sleep"), &program);
    }
    Ended::new(Command::new(program).arg("100"))
}

#[test]
fn a_process_is_found_by_its_name_and_of_several_the_user_chooses() {
    let folder = tempfile::tempdir().expect("a folder");
    let name = format!("sleeps-{}-for-long", std::process::id());
    let attach = |name: &str| {
        let mut command = sunder();
        command.args(["attach", "--duration", "50ms", "--name", name]);
        command
    };
    let first = sleeper(folder.path(), &name);
    // It may not have executed its program yet.
    let link = format!("/proc/{}/exe", first.id());
    let by_then = Instant::now() + Duration::from_secs(20);
    while !std::fs::read_link(&link).is_ok_and(|file| file.ends_with(&name)) {
        assert!(Instant::now() < by_then, "it never began");
        std::thread::sleep(Duration::from_millis(5));
    }
    let seen = attach(&name).assert().success();
    let said = String::from_utf8_lossy(&seen.get_output().stderr).into_owned();
    assert!(said.contains(&name), "{said}");
    let second = sleeper(folder.path(), &name);
    std::thread::sleep(Duration::from_millis(500));
    let seen = attach(&name).assert().code(2);
    let said = String::from_utf8_lossy(&seen.get_output().stderr).into_owned();
    for told in [&first.id(), &second.id(), "--pid"] {
        assert!(said.contains(told), "{told}: {said}");
    }
    drop((first, second));
    let seen = attach(&name).assert().code(125);
    let said = String::from_utf8_lossy(&seen.get_output().stderr).into_owned();
    assert!(said.contains(&name), "{said}");
}

/// `top -H` and `ps -L` show the numbers of threads.
#[test]
fn a_threads_number_leads_to_its_process() {
    let target = target("thread_stats", LONG);
    let tasks = format!("/proc/{}/task", target.id());
    let by_then = Instant::now() + Duration::from_secs(20);
    let thread = loop {
        let tasks = std::fs::read_dir(&tasks).expect("it lives").flatten();
        let mut names = tasks.filter_map(|task| task.file_name().into_string().ok());
        if let Some(thread) = names.find(|name| *name != target.id()) {
            break thread;
        }
        assert!(Instant::now() < by_then, "it starts no thread");
        std::thread::sleep(Duration::from_millis(5));
    };
    let mut command = sunder();
    command.args(["attach", "--duration", "50ms", "--pid", &thread]);
    let seen = command.assert().success();
    let said = String::from_utf8_lossy(&seen.get_output().stderr).into_owned();
    let told = format!("{thread} is a thread of process {}", target.id());
    assert!(said.contains(&told), "{said}");
}

#[test]
fn a_stopped_process_is_told_as_such() {
    let target = target("thread_stats", LONG);
    let process: i32 = target.id().parse().expect("a number");
    // SAFETY: takes two integers; the child has not been waited for.
    unsafe { libc::kill(process, libc::SIGSTOP) };
    let stat = format!("/proc/{process}/stat");
    let by_then = Instant::now() + Duration::from_secs(20);
    while !std::fs::read_to_string(&stat).is_ok_and(|text| text.contains(") T ")) {
        assert!(Instant::now() < by_then, "it does not stop");
        std::thread::sleep(Duration::from_millis(5));
    }
    let mut command = sunder();
    command.args(["attach", "--duration", "50ms", "--pid", &target.id()]);
    let seen = command.assert().success();
    let said = String::from_utf8_lossy(&seen.get_output().stderr).into_owned();
    assert!(
        said.contains(&format!("process {process} is stopped")),
        "{said}"
    );
}

/// A control group whose processes are frozen until this value is dropped.
struct Frozen<'a>(&'a Path);

impl Frozen<'_> {
    fn set(&self, file: &str, value: &str) {
        std::fs::write(self.0.join(file), value).expect("ours");
    }
}

impl Drop for Frozen<'_> {
    fn drop(&mut self) {
        self.set("freezer.state", "THAWED");
    }
}

/// As `docker pause` freezes a container.
#[test]
fn a_frozen_process_is_told_as_such() {
    let group = Path::new("/sys/fs/cgroup/freezer/sunder-test-frozen");
    if std::fs::create_dir_all(group).is_err() || !group.join("freezer.state").exists() {
        println!("SKIP: control groups that can be frozen are not ours to make");
        return;
    }
    let target = target("thread_stats", LONG);
    let frozen = Frozen(group);
    frozen.set("cgroup.procs", &target.id());
    frozen.set("freezer.state", "FROZEN");
    let said = |arguments: &[&str]| {
        let mut command = sunder();
        command
            .arg("attach")
            .args(arguments)
            .args(["--pid", &target.id()]);
        let seen = command.output().expect("it starts");
        String::from_utf8_lossy(&seen.stderr).into_owned()
    };
    let observed = said(&["--duration", "50ms"]);
    let repaired = said(&["--repair", "--duration", "50ms"]);
    drop(frozen);
    drop(target);
    let _ = std::fs::remove_dir(group);
    assert!(
        observed.contains("is frozen by its control group"),
        "{observed}"
    );
    assert!(
        repaired.contains("is frozen by its control group"),
        "{repaired}"
    );
}

#[test]
fn heap_objects_are_named_by_the_pointers_that_lead_to_them() {
    let folder = tempfile::tempdir().expect("a folder");
    side_by_side("adjacent_objects", || {
        let target = target("adjacent_objects", LONG);
        let result = attach(&target, "1s", &folder.path().join("result.json"));
        drop(target);
        let result = result?;
        let finding = falsely_shared(&result, |f| {
            let named = f.object.type_name.as_deref().unwrap_or_default();
            f.object.kind != ObjectKind::Global && named.contains("account")
        })?;
        names_fields(finding, &["balance", "deposits"])
    });
}

#[test]
fn the_process_goes_on_as_if_nothing_had_been() {
    // A sum of record lengths, which depends on the size alone.
    let size = "20000000";
    let native = Command::new(build("thread_stats", Variant::Shared))
        .args(["2", size])
        .output()
        .expect("the workload runs");
    let folder = tempfile::tempdir().expect("a folder");
    let mut target = target("thread_stats", size);
    // The program may be over before `attach` observes it; a sentence then says so.
    let seen = sunder()
        .args([
            "attach",
            "--quiet",
            "--pid",
            &target.id(),
            "--duration",
            "50ms",
        ])
        .arg("-o")
        .arg(folder.path().join("result.json"))
        .output()
        .expect("sunder starts");
    assert!(matches!(seen.status.code(), Some(0 | 125)), "{seen:?}");
    let mut text = Vec::new();
    let child = target.child();
    let out = child.stdout.as_mut().expect("piped");
    out.read_to_end(&mut text).expect("readable");
    assert_eq!(text, native.stdout);
    assert!(child.wait().expect("waited for").success());
}

#[test]
fn a_process_that_ends_early_is_reported() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("result.json");
    let mut sleeper = Ended::new(Command::new("sleep").arg("600"));
    let started = Instant::now();
    let looking = plain_sunder()
        .args(["attach", "--pid", &sleeper.id(), "--duration", "10m"])
        .arg("-o")
        .arg(&file)
        .stderr(Stdio::piped())
        .spawn()
        .expect("sunder starts");
    crate::support::observed(looking.id(), &sleeper.id());
    sleeper.child().kill().expect("ours");
    // Reaped, as any parent does.
    sleeper.child().wait().expect("waited for");
    let seen = looking.wait_with_output().expect("sunder ends by itself");
    assert!(started.elapsed() < Duration::from_secs(300));
    assert_eq!(seen.status.code(), Some(0), "{seen:?}");
    let told = String::from_utf8_lossy(&seen.stderr);
    assert!(told.contains("ended before the time was over"), "{told}");
    open(&file).expect("a result");
}

#[test]
fn a_process_that_nobody_collects_has_ended_too() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("result.json");
    let mut sleeper = Ended::new(Command::new("sleep").arg("600"));
    let looking = plain_sunder()
        .args(["attach", "--pid", &sleeper.id(), "--duration", "10m"])
        .arg("-o")
        .arg(&file)
        .stderr(Stdio::piped())
        .spawn()
        .expect("sunder starts");
    crate::support::observed(looking.id(), &sleeper.id());
    // A zombie until the end of this test.
    sleeper.child().kill().expect("ours");
    let seen = looking.wait_with_output().expect("sunder ends by itself");
    assert_eq!(seen.status.code(), Some(0), "{seen:?}");
    open(&file).expect("a result");
}

#[test]
fn an_interrupt_ends_the_observation_and_not_the_report() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("result.json");
    let mut sleeper = Ended::new(Command::new("sleep").arg("600"));
    for signal in [libc::SIGINT, libc::SIGTERM] {
        let looking = plain_sunder()
            .args(["attach", "--pid", &sleeper.id(), "--duration", "10m"])
            .arg("-o")
            .arg(&file)
            .stderr(Stdio::piped())
            .spawn()
            .expect("sunder starts");
        crate::support::observed(looking.id(), &sleeper.id());
        // SAFETY: takes two integers; the child has not been waited for.
        unsafe { libc::kill(looking.id() as i32, signal) };
        let seen = looking.wait_with_output().expect("sunder ends");
        assert_eq!(seen.status.code(), Some(0), "{signal}: {seen:?}");
        open(&file).expect("a result");
        std::fs::remove_file(&file).expect("written");
    }
    assert_eq!(sleeper.child().try_wait().expect("ours"), None);
}

#[test]
fn the_duration_is_kept() {
    let folder = tempfile::tempdir().expect("a folder");
    let sleeper = Ended::new(Command::new("sleep").arg("600"));
    let result = attach(&sleeper, "300ms", &folder.path().join("result.json"));
    let seconds = result.expect("a result").run.seconds;
    // How much longer depends on the machine; the observation must not be shorter.
    assert!((0.3..60.0).contains(&seconds), "{seconds}");
}

#[test]
fn kernel_threads_are_refused_in_one_sentence() {
    // Outside of containers, process 2 is the kernel's thread daemon.
    let kernel = std::fs::read_link("/proc/2/exe").is_err()
        && std::fs::read_to_string("/proc/2/comm").is_ok_and(|c| c.trim() == "kthreadd");
    if !kernel {
        println!("SKIP: no kernel threads are visible here");
        return;
    }
    let seen = sunder()
        .args(["attach", "--duration", "100ms", "--pid", "2"])
        .output()
        .expect("sunder starts");
    let told = String::from_utf8_lossy(&seen.stderr);
    assert_eq!(seen.status.code(), Some(125), "{told}");
    assert_eq!(told.lines().count(), 1, "{told}");
}

/// With `--measure` its contending threads are stopped for moments; no wait of theirs ends early.
#[test]
fn a_process_that_is_measured_goes_on_as_it_would() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("result.json");
    side_by_side("attach --measure", || {
        let program = c_program("contends", &["-O2", "-pthread"]).ok_or("there is no gcc")?;
        let mut command = Command::new(program);
        let child = command.arg("1000").stdout(Stdio::piped()).spawn();
        let child = child.expect("it was just compiled");
        let measure = ["attach", "--quiet", "--measure", "--duration", "1500ms"];
        sunder()
            .args(measure)
            .args(["--pid", &child.id().to_string(), "-o"])
            .arg(&file)
            .assert()
            .success()
            .stderr("");
        let output = child.wait_with_output().expect("it ends");
        let text = String::from_utf8_lossy(&output.stdout);
        assert_eq!(text, "1000000000 1000000000, interrupted 0\n");
        assert_eq!(output.status.code(), Some(3));
        let result = open(&file)?;
        let mut gains = result.findings.iter().filter_map(|f| f.gain_percent);
        let gain = gains.next().ok_or(format!("{:?}", result.limits))?;
        assert!(gain.comparisons > 0, "{gain:?}");
        Ok(())
    });
}
