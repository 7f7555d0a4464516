//! A single look at all processes.

use crate::records::{can_watch, findings, records, status, target};
use crate::support::confine::{as_nobody, is_root};
use crate::support::targets::{as_expected, side_by_side};
use crate::support::{plain_sunder, sunder};
use std::process::Command;
use sunder_findings::{Happening, fingerprint};
use sunder_workloads::Variant;

/// What a watch with these arguments tells.
pub fn watch(arguments: &[&str]) -> Vec<u8> {
    let mut command = sunder();
    let seen = command.args(["watch", "--quiet", "--json", "/dev/stdout"]);
    let seen = seen.args(arguments).output().expect("it starts");
    assert!(seen.status.success(), "{seen:?}");
    seen.stdout
}

/// A misspelt name must not read as if all were well.
#[test]
fn a_look_at_nobody_is_refused() {
    if !can_watch() {
        return;
    }
    let choices = [
        ["--pid", "8388608"],
        ["--name", "nosuch"],
        ["--cgroup", "/nosuch"],
        ["--unit", "nosuch.service"],
        ["--container", "abcdefabcdef"],
    ];
    for choice in choices {
        let mut command = plain_sunder();
        let seen = command.args(["watch", "--once", "1s"]).args(choice);
        let seen = seen.output().expect("it starts");
        let told = String::from_utf8_lossy(&seen.stderr);
        assert_eq!(seen.status.code(), Some(125), "{told}");
        assert!(told.contains("no process that runs now fits"), "{told}");
    }
}

#[test]
fn a_file_that_cannot_be_written_is_refused_before_anything_is_watched() {
    for option in ["--prom-file", "--pprof", "--json"] {
        let mut command = plain_sunder();
        let file = "/nosuch/figures.prom";
        let seen = command.args(["watch", "--once", "1h", option, file]);
        let seen = seen.output().expect("it starts");
        let told = String::from_utf8_lossy(&seen.stderr);
        assert_eq!(seen.status.code(), Some(125), "{option}: {told}");
        assert!(told.contains(file), "{option}: {told}");
    }
}

#[test]
fn among_all_processes_the_one_that_shares_falsely_is_found() {
    if !can_watch() {
        return;
    }
    side_by_side("thread_stats among others", || {
        let shared = target("thread_stats", Variant::Shared);
        let own = shared.id();
        let told = records(&watch(&["--once", "4s"]));
        let sleeping = Command::new("kill").args(["-0", &own]).status();
        assert!(
            sleeping.expect("there is kill").success(),
            "it was not disturbed"
        );
        drop(shared);
        let found = findings(&told);
        let of_it = |f: &&&sunder_findings::Watched| f.origin.pid.to_string() == own;
        let found = found.iter().find(of_it).ok_or("not found")?;
        as_expected(&found.finding, "thread_stats")?;
        assert_eq!(found.event, Happening::Present);
        assert_eq!(found.fingerprint, fingerprint(&found.finding));
        assert!(found.origin.program.starts_with("thread_stats"));
        assert!(
            found
                .origin
                .build_id
                .as_ref()
                .is_some_and(|id| id.len() >= 32)
        );
        assert!(!found.finding.advice.is_empty());
        let status = status(&told);
        assert!(
            status.samples > 0 && status.own_cpu_seconds > 0.0,
            "{status:?}"
        );
        let lost = &status.present.iter().find(|p| p.pid.to_string() == own);
        let there = lost.ok_or("no cost")?;
        assert_eq!(there.build_id, found.origin.build_id);
        assert!(there.appeared_unix_ns > status.begun_unix_ns && status.begun_unix_ns > 0);
        let looked = status
            .looked
            .iter()
            .find(|one| one.path == found.origin.path);
        let looked = looked.expect("it was looked at");
        assert_eq!(
            (looked.looks, &looked.build_id),
            (1, &found.origin.build_id)
        );
        let lost = there.lost_seconds;
        // Two threads lose at most all of their time.
        assert!((0.0..=8.5).contains(&lost) && lost > 0.01, "{lost}");
        Ok(())
    });
}

#[test]
fn what_is_not_chosen_or_shares_nothing_is_not_told() {
    if !can_watch() {
        return;
    }
    let shared = target("thread_stats", Variant::Shared);
    let fixed = target("thread_stats", Variant::Fixed);
    let of_fixed = records(&watch(&["--once", "4s", "--pid", &fixed.id()]));
    assert_eq!(findings(&of_fixed).len(), 0, "{of_fixed:#?}");
    let mut idle = Command::new("sleep").arg("60").spawn().expect("it starts");
    let named = records(&watch(&["--once", "2s", "--name", "sle?p"]));
    idle.kill().expect("a child of ours");
    idle.wait().expect("a child of ours");
    assert_eq!(findings(&named).len(), 0, "{named:#?}");
    assert_eq!(status(&named).looks, 0);
    drop(shared);
}

#[test]
fn without_rights_one_sentence_says_what_is_missing() {
    if !is_root() {
        println!("SKIP: only root can give up rights");
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let program = folder.path().join("sunder");
    crate::support::copy_program(plain_sunder().get_program().as_ref(), &program);
    use std::os::unix::fs::PermissionsExt;
    let everybody = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(folder.path(), everybody).expect("ours");
    let mut command = Command::new(&program);
    command.args(["watch", "--once", "1s"]);
    as_nobody(&mut command);
    let refused = command.output().expect("it starts");
    let told = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(125), "{told}");
    assert!(told.contains("CAP_PERFMON and CAP_SYS_PTRACE"), "{told}");
    assert_eq!(told.lines().count(), 1, "{told}");
    let mut command = Command::new(&program);
    command.args(["watch", "--check"]);
    as_nobody(&mut command);
    let checked = command.output().expect("it starts");
    assert_eq!(checked.status.code(), Some(125));
    assert!(String::from_utf8_lossy(&checked.stdout).contains("CAP_PERFMON"));
}

/// Its files are opened with its own rights, and what it may not read is not quoted.
#[test]
fn a_program_of_another_user_is_found_and_quotes_nothing_that_it_may_not_read() {
    if !is_root() || !can_watch() {
        println!("SKIP: only root watches other users");
        return;
    }
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().expect("a folder");
    let mode = |path: &std::path::Path, mode| {
        let set = std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode));
        set.expect("ours");
    };
    mode(folder.path(), 0o755);
    let secret = folder.path().join("of-root");
    std::fs::write(&secret, "a line of root's\n".repeat(40)).expect("written");
    let program = folder.path().join("program");
    crate::support::targets::compile_disguised(&secret, &["-g"], &program);
    for (bits, is_quoted) in [(0o644, true), (0o600, false)] {
        mode(&secret, bits);
        side_by_side(&format!("mode {bits:o}"), || {
            let mut command = Command::new(&program);
            command.stdin(std::process::Stdio::piped());
            command.stdout(std::process::Stdio::null());
            as_nobody(&mut command);
            let theirs = crate::support::Ended::new(&mut command);
            let told = watch(&["--once", "4s", "--pid", &theirs.id()]);
            drop(theirs);
            let text = String::from_utf8_lossy(&told).into_owned();
            if findings(&records(&told)).is_empty() {
                return Err(text);
            }
            assert_eq!(text.contains("a line of root's"), is_quoted, "{text}");
            Ok(())
        });
    }
}
