//! Programs that start others: with `--follow-children` what the other programs share is reported;
//! without it the report says that they were not observed.

use crate::support::confine::refuse_perf;
use crate::support::targets::{
    alone, as_expected, build, falsely_shared, global, in_a_row, open, side_by_side, workload,
};
use crate::support::{c_program, plain_sunder};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use sunder_findings::{Finding, Findings, ObjectKind, Sharing};
use sunder_workloads::Variant;

const NOT_LOOKED_AT: &str = "started other processes, which were not looked at";

fn detect(options: &[&str], program: &Path, arguments: &[&str]) -> Result<Findings, String> {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("result.json");
    let mut command = plain_sunder();
    command.args(["detect", "--quiet"]).args(options).arg("-o");
    command.arg(&file).arg("--").arg(program).args(arguments);
    let seen = command.output().expect("sunder starts");
    let told = String::from_utf8_lossy(&seen.stderr);
    assert_eq!((seen.status.code(), told.as_ref()), (Some(0), ""));
    open(&file)
}

/// `tests/programs/forks.c`, compiled once: compiling it again would delete the file of a program
/// that runs.
fn forks() -> PathBuf {
    static COMPILED: OnceLock<PathBuf> = OnceLock::new();
    let compile = || c_program("forks", &[]).expect("it compiles without flags");
    COMPILED.get_or_init(compile).clone()
}

fn says(result: &Findings, what: &str) -> bool {
    result.limits.iter().any(|l| l.to_string().contains(what))
}

fn nothing_found(result: &Findings) -> bool {
    result.findings.iter().all(|f| f.sharing == Sharing::True)
}

#[test]
fn threads_of_children_are_seen() {
    let program = forks();
    for how in ["fork", "exec", "late-exec"] {
        side_by_side(how, || {
            let result = detect(&["--follow-children"], &program, &[how])?;
            assert!(!says(&result, NOT_LOOKED_AT), "{:#?}", result.limits);
            assert_eq!(result.program.path.as_deref(), program.to_str());
            // The first thread of two processes, and two more in the child. The samples of the
            // child from before it executes its program belong to the same thread.
            assert_eq!(result.run.threads, 4);
            falsely_shared(&result, global("tallies")).map(|_| ())
        });
    }
}

#[test]
fn a_script_that_starts_a_program_twice_gives_a_finding_for_each() {
    let folder = tempfile::tempdir().expect("a folder");
    let script = folder.path().join("twice.sh");
    let program = build("thread_stats", Variant::Shared);
    let line = format!(
        "{} 2 {}\n",
        program.display(),
        workload("thread_stats").size
    );
    std::fs::write(&script, line.repeat(2)).expect("written");
    in_a_row("twice", 2, || {
        let result = detect(
            &["--follow-children"],
            Path::new("sh"),
            &[script.to_str().expect("utf-8")],
        )?;
        let of_stats: Vec<_> = result
            .findings
            .iter()
            .filter(|f| global("stats")(f))
            .collect();
        if of_stats.len() != 2 {
            return Err(format!("{} findings instead of 2", of_stats.len()));
        }
        as_expected(of_stats[0], "thread_stats")?;
        as_expected(of_stats[1], "thread_stats")
    });
}

#[test]
fn without_the_option_children_are_left_out_and_this_is_said() {
    let _alone = alone();
    let program = forks();
    for how in ["fork", "exec"] {
        for observer in ["perf", "timer"] {
            if observer == "perf" && !crate::support::perf_works() {
                continue;
            }
            let result = detect(&["--observer", observer], &program, &[how]);
            let result = result.expect("a result");
            assert!(
                says(&result, NOT_LOOKED_AT),
                "{how} {observer}: {:#?}",
                result.limits
            );
            assert!(nothing_found(&result), "{how} {observer}");
        }
    }
}

/// The one finding about a heap block with its allocation in `allocate`, which
/// `caller` called.
fn heap_of<'a>(result: &'a Findings, caller: &str) -> Result<&'a Finding, String> {
    let is_heap = |f: &Finding| f.object.kind == ObjectKind::Heap;
    let finding = falsely_shared(result, is_heap)?;
    let stack = &finding.object.allocation;
    let functions: Vec<_> = stack.iter().map(|f| f.function.as_str()).collect();
    if functions.get(..2) != Some(&["allocate", caller][..]) {
        return Err(format!("allocated in {functions:?}"));
    }
    Ok(finding)
}

/// Checks that the finding is of a process other than the first, and that its program is known.
fn in_a_child(result: &Findings, finding: &Finding) -> Result<(), String> {
    let [process] = &finding.processes[..] else {
        return Err(format!("processes: {:?}", finding.processes));
    };
    // The last of this number: before the child executed another program it had the same one.
    let known = result.processes.iter().rfind(|p| p.id == process.id);
    let known = known.ok_or("the process is not among those of the run")?;
    if process.name.as_deref() != Some("forks") || known.parent.is_none() || known.threads != 3 {
        return Err(format!("{known:?}"));
    }
    assert!(known.heap_recorded);
    Ok(())
}

#[test]
fn heap_objects_of_children_are_named_with_their_call_stacks() {
    let program = forks();
    for (how, caller) in [
        ("fork-heap", "share_heap"),
        ("before-heap", "share_inherited"),
        ("daemon-heap", "share_heap"),
    ] {
        side_by_side(how, || {
            let result = detect(&["--follow-children"], &program, &[how])?;
            assert!(!says(&result, "call stacks"), "{:#?}", result.limits);
            in_a_child(&result, heap_of(&result, caller)?)
        });
    }
}

/// However a child executes its program, the program's heap is recorded.
#[test]
fn every_way_to_execute_a_program_is_followed() {
    let program = forks();
    for way in [
        "execv", "execl", "execlp", "execle", "many", "fexecve", "syscall", "closed", "spawn",
        "vfork",
    ] {
        let _alone = alone();
        let arguments = ["exec-heap", way];
        let result = detect(&["--follow-children"], &program, &arguments).expect("a result");
        let children = result.processes.iter().filter(|p| p.threads == 3);
        let recorded: Vec<_> = children.map(|p| p.heap_recorded).collect();
        if recorded.is_empty() {
            println!("SKIP: {way}: the child was not sampled");
        } else {
            assert_eq!(recorded, [true], "{way}: {:#?}", result.processes);
        }
    }
}

/// No library of ours can be in such a program, which hands the variables down.
#[test]
fn what_a_static_program_starts_is_recorded() {
    let Some(program) = c_program("launches", &["-static"]) else {
        return;
    };
    let started = forks();
    let _alone = alone();
    let arguments = [started.to_str().expect("utf-8"), "exec-heap", "execv"];
    let result = detect(&["--follow-children"], &program, &arguments).expect("a result");
    let children = result.processes.iter().filter(|p| p.threads == 3);
    let recorded: Vec<_> = children.map(|p| p.heap_recorded).collect();
    if recorded.is_empty() {
        println!("SKIP: the child was not sampled");
    } else {
        assert_eq!(recorded, [true], "{:#?}", result.processes);
    }
}

#[test]
fn an_exec_in_place_uses_no_record_of_the_old_program() {
    let program = forks();
    for way in ["execv", "execl", "execle", "syscall"] {
        side_by_side(way, || {
            let result = detect(&[], &program, &["become-heap", way])?;
            heap_of(&result, "share_heap").map(|_| ())
        });
    }
}

#[test]
fn the_timer_observer_follows_children() {
    let program = forks();
    for (arguments, caller) in [
        (&["fork-heap"][..], "share_heap"),
        (&["before-heap"], "share_inherited"),
        (&["exec-heap", "execv"], "share_heap"),
    ] {
        side_by_side(arguments[0], || {
            let folder = tempfile::tempdir().expect("a folder");
            let file = folder.path().join("result.json");
            let mut command = plain_sunder();
            refuse_perf(&mut command, libc::EPERM);
            command.args(["detect", "--quiet", "--follow-children", "-o"]);
            command.arg(&file).arg("--").arg(&program).args(arguments);
            let seen = command.output().expect("sunder starts");
            assert_eq!(seen.status.code(), Some(0));
            let result = open(&file)?;
            assert_eq!(result.run.observer, "timer");
            in_a_child(&result, heap_of(&result, caller)?)
        });
    }
}

#[test]
fn false_sharing_between_processes_is_found_in_memory_that_they_share() {
    let program = forks();
    side_by_side("serve", || {
        let result = detect(&["--follow-children"], &program, &["serve"])?;
        let finding = falsely_shared(&result, |f| f.object.kind == ObjectKind::Mapping)?;
        assert_eq!(finding.processes.len(), 2, "{:?}", finding.processes);
        let words = finding.lines.iter().flat_map(|l| &l.words);
        for user in words.flat_map(|w| &w.threads) {
            // Each child has one thread, whose number is the process's.
            assert_eq!(user.process, Some(user.id));
        }
        Ok(())
    });
}

#[test]
fn processes_that_share_no_line_share_nothing() {
    let _alone = alone();
    let program = forks();
    for how in ["serve-apart", "twins"] {
        let result = detect(&["--follow-children"], &program, &[how]).expect("a result");
        assert!(nothing_found(&result), "{how}: {:#?}", result.findings);
    }
}

#[test]
fn a_program_that_starts_nothing_is_told_nothing_of_it() {
    let result = detect(&[], Path::new("true"), &[]).expect("a result");
    assert!(!says(&result, "other processes"), "{:#?}", result.limits);
}

#[test]
fn a_program_that_becomes_another_stays_observed() {
    let program = forks();
    // `env` executes the program in its own place; the path is that of the last program.
    let path = program.to_str().expect("utf-8").to_owned();
    for (first, arguments) in [
        (program.as_path(), vec!["become"]),
        (Path::new("env"), vec!["NAME=value", &path, "work"]),
    ] {
        for observer in ["auto", "timer"] {
            side_by_side(observer, || {
                let result = detect(&["--observer", observer], first, &arguments)?;
                assert!(!says(&result, "other processes"), "{:#?}", result.limits);
                assert_eq!(result.program.path.as_deref(), Some(path.as_str()));
                falsely_shared(&result, global("tallies")).map(|_| ())
            });
        }
    }
}

/// Wrappers execute each other within a millisecond, sooner than the tool can make new segments.
/// Enough are ready, so that the last program's heap is recorded.
#[test]
fn programs_that_execute_each_other_at_once_are_recorded() {
    let wrappers = ["env"; 8];
    let result = detect(&[], Path::new("env"), &[&wrappers[..], &["true"]].concat());
    let result = result.expect("a result");
    assert!(!says(&result, "no names"), "{:#?}", result.limits);
}

/// A program that becomes a daemon ends at once, and what it has started goes on unseen.
#[test]
fn what_goes_on_after_the_program_is_named() {
    let ran = plain_sunder()
        .args(["detect", "--follow-children", "--"])
        .args(["sh", "-c", "sleep 30 >/dev/null 2>&1 & echo $!"])
        .output()
        .expect("it runs");
    let number = String::from_utf8_lossy(&ran.stdout).trim().to_owned();
    let told = String::from_utf8_lossy(&ran.stderr).replace('\n', " ");
    let told = told.split_whitespace().collect::<Vec<_>>().join(" ");
    let ended = std::process::Command::new("kill").arg(&number).status();
    assert!(ended.expect("kill runs").success(), "{told}");
    let wanted = format!("but process {number} (");
    assert!(told.contains(&wanted), "{told}");
    assert!(told.contains("that it started goes on"), "{told}");
}
