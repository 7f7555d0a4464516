//! Processes that do not stay as they are while they are looked at: they execute, start others, end; their
//! threads come and go; their files are deleted, or lie where only they see them.

use crate::always::{end, has, so_far, wait_for, watching};
use crate::once::watch;
use crate::records::{can_watch, findings, records, status};
use crate::support::confine::is_root;
use crate::support::installed::installed;
use crate::support::targets::side_by_side;
use crate::support::{Ended, c_program, copy_program};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use sunder_findings::{Happening, Record, Watched};

/// The data of `changes.c`.
const OBJECT: &str = "neighbours";

fn program() -> PathBuf {
    c_program("changes", &["-O1", "-g", "-pthread"]).expect("gcc is needed, as the README says")
}

/// The program in a way of its own, until the value is dropped.
fn changing(program: &Path, arguments: &[&str]) -> Ended {
    let mut command = Command::new(program);
    command.args(arguments).stdout(Stdio::null());
    Ended::new(&mut command)
}

/// The finding about the data of `changes.c` in the process `pid`.
fn about<'a>(told: &'a [Record], pid: &str) -> Result<&'a Watched, String> {
    let found = findings(told);
    let of_it = |f: &&Watched| {
        f.origin.pid.to_string() == pid && f.finding.object.name.as_deref() == Some(OBJECT)
    };
    let found = found.into_iter().find(of_it);
    found.ok_or_else(|| format!("not found: {told:#?}"))
}

#[test]
fn a_program_whose_file_was_deleted_is_named() {
    if !can_watch() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let copy = folder.path().join("copy");
    side_by_side("a deleted program", || {
        copy_program(&program(), &copy);
        let theirs = changing(&copy, &["generations", "600000"]);
        std::fs::remove_file(&copy).expect("ours");
        let told = records(&watch(&["--once", "4s", "--pid", &theirs.id()]));
        let found = about(&told, &theirs.id())?;
        assert_eq!(found.origin.program, "copy");
        let lines = found.finding.sites.iter().filter_map(|site| site.line);
        assert!(lines.count() > 0, "{found:#?}");
        Ok(())
    });
}

/// The file is one that nobody else sees, and its numbers of processes are others.
#[test]
fn a_program_in_namespaces_of_its_own_is_named() {
    if !is_root() || !can_watch() {
        println!("SKIP: only root makes such namespaces");
        return;
    }
    let Some(unshare) = installed("unshare") else {
        return;
    };
    let folder = tempfile::tempdir().expect("a folder");
    let place = folder.path().join("own");
    std::fs::create_dir(&place).expect("a folder");
    let copy = place.join("copy");
    let script = format!(
        "mount -t tmpfs none {0} && cp {1} {0}/copy && exec {0}/copy generations 600000",
        place.display(),
        program().display()
    );
    side_by_side("other namespaces", || {
        let mut command = Command::new(&unshare);
        command.args(["--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]);
        command.args(["sh", "-c", &script]).stdout(Stdio::null());
        let outer = Ended::new(&mut command);
        let Some(pid) = inner(&outer.id()) else {
            return Err("it has not started".into());
        };
        assert!(!copy.exists(), "the folder is the namespace's own");
        let told = records(&watch(&["--once", "4s", "--pid", &pid]));
        let found = about(&told, &pid)?;
        assert_eq!(found.origin.program, "copy");
        assert!(found.origin.build_id.is_some(), "{found:#?}");
        Ok(())
    });
}

/// The process that `unshare` has started, once it executes the program.
fn inner(outer: &str) -> Option<String> {
    let since = Instant::now();
    while since.elapsed() < Duration::from_secs(10) {
        let children = format!("/proc/{outer}/task/{outer}/children");
        let children = std::fs::read_to_string(children).unwrap_or_default();
        if let Some(pid) = children.split_whitespace().next()
            && std::fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|to| to.ends_with("copy"))
        {
            return Some(pid.to_owned());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    None
}

#[test]
fn threads_that_come_and_go_share_all_the_same() {
    if !can_watch() {
        return;
    }
    side_by_side("threads of 300 ms", || {
        let theirs = changing(&program(), &["generations", "300"]);
        let told = records(&watch(&["--once", "4s", "--pid", &theirs.id()]));
        let found = about(&told, &theirs.id())?;
        // More than the two that ran at a time.
        assert!(found.finding.threads().len() > 2, "{found:#?}");
        Ok(())
    });
}

#[test]
fn a_process_that_starts_many_others_is_found() {
    if !can_watch() {
        return;
    }
    side_by_side("a process that forks", || {
        let theirs = changing(&program(), &["forks"]);
        let told = records(&watch(&["--once", "4s", "--pid", &theirs.id()]));
        about(&told, &theirs.id()).map(|_| ())
    });
}

#[test]
fn a_finding_goes_when_its_process_executes_another_program() {
    if !can_watch() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let mut run = 0;
    side_by_side("a process that executes", || {
        run += 1;
        let file = folder.path().join(format!("{run}.jsonl"));
        let theirs = changing(&program(), &["execs", "9000"]);
        let watching = watching(&theirs.id(), &file);
        wait_for(&file, has(Happening::Appeared))?;
        // The process goes on, as another program.
        let told = wait_for(&file, has(Happening::Gone))?;
        assert_eq!(
            about(&told, &theirs.id())?.event,
            Happening::Appeared,
            "{told:#?}"
        );
        let alive = std::fs::read(format!("/proc/{}/cmdline", theirs.id())).expect("it lives");
        assert!(alive.ends_with(b"sleeps\0"), "{alive:?}");
        end(watching, libc::SIGTERM);
        assert!(status(&so_far(&file)).present.is_empty());
        Ok(())
    });
}

/// What is known of it until then is told, and then that it is gone.
#[test]
fn a_process_may_end_during_its_look() {
    if !can_watch() {
        return;
    }
    let mut run = 0;
    let folder = tempfile::tempdir().expect("a folder");
    side_by_side("a process that ends", || {
        run += 1;
        let file = folder.path().join(format!("{run}.jsonl"));
        let mut theirs = changing(&program(), &["ends", "2500"]);
        let pid = theirs.id();
        let mut command = crate::support::plain_sunder();
        // A look takes ten seconds.
        command.args(["watch", "--quiet", "--budget", "100%", "--pid", &pid]);
        command.args(["--interval", "60s", "--json"]).arg(&file);
        let watching = Ended::new(&mut command);
        let ended = theirs.child().wait().expect("it ends");
        assert!(ended.success(), "it was not disturbed: {ended}");
        let told = wait_for(&file, has(Happening::Gone));
        end(watching, libc::SIGTERM);
        let last = so_far(&file);
        assert_eq!(status(&last).looks_failed, 0, "{last:#?}");
        let told = told?;
        let events: Vec<Happening> = findings(&told).iter().map(|f| f.event).collect();
        assert_eq!(events, [Happening::Appeared, Happening::Gone], "{told:#?}");
        about(&told, &pid).map(|_| ())
    });
}
