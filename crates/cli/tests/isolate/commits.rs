//! What `sunder protect --commits` writes, read while the program runs and afterwards: by our
//! reader, by the example in C, and by readers that go away. The program and its expected bytes:
//! `programs/commits.c`. It runs until its reader has seen enough, so no test depends on time.

use crate::support::built;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use sunder_protect::commits::format::{Event, Reader};

/// Changes of each thread that are enough.
const ENOUGH: usize = 5;

fn built(source: &Path, name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let program = folder.join(name);
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../include");
    let mut compiler = Command::new("gcc");
    compiler.args(["-O1", "-g", "-Wall", "-Wextra", "-Werror", "-pthread", "-I"]);
    built::once(&program, compiler.arg(include).arg(source)).expect("it compiles");
    program
}

fn program() -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/commits.c");
    built(&source, "commits")
}

fn file(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_file(&path);
    path
}

fn pipe(name: &str) -> PathBuf {
    let path = file(name);
    let made = Command::new("mkfifo").arg(&path).status();
    assert!(made.expect("mkfifo runs").success());
    path
}

/// The program under protection, with its input open.
fn start(commits: &Path, options: &[&str], how: &str) -> Child {
    let mut command = Command::new("timeout");
    command.args(["-s", "KILL", "120", env!("CARGO_BIN_EXE_sunder"), "protect"]);
    command.arg("--commits").arg(commits).args(options);
    command.arg("--").arg(program()).arg(how);
    let pipes = command.stdin(Stdio::piped()).stdout(Stdio::piped());
    pipes.stderr(Stdio::piped()).spawn().expect("timeout runs")
}

/// The program's standard input, whose end it waits for.
struct Input(Arc<Mutex<Option<ChildStdin>>>);

impl Input {
    /// It ends by itself after a while, for a program that never commits enough.
    fn of(child: &mut Child) -> Self {
        const LONGEST: Duration = Duration::from_secs(20);
        let input = Arc::new(Mutex::new(child.stdin.take()));
        let late = Self(Arc::clone(&input));
        std::thread::spawn(move || {
            std::thread::sleep(LONGEST);
            late.end();
        });
        Self(input)
    }

    fn end(&self) {
        drop(self.0.lock().expect("nobody panics with it").take());
    }
}

/// A run of the program, and its stream to the end.
struct Run {
    events: Vec<Event>,
    /// The page's address and the threads' numbers, as the program prints them.
    page: u64,
    threads: [u32; 2],
    status: ExitStatus,
    said: String,
    report: serde_json::Value,
}

/// Runs the program until both threads have committed often enough. `None` where threads can't be
/// stopped.
fn run(name: &str, options: &[&str], how: &str) -> Option<Run> {
    let commits = pipe(&format!("{name}.commits"));
    let report = file(&format!("{name}.json"));
    let path = report.to_str().expect("our own path");
    let mut child = start(&commits, &[options, &["--report", path]].concat(), how);
    let input = Input::of(&mut child);
    let mut events = Vec::new();
    let mut changes: BTreeMap<u32, usize> = BTreeMap::new();
    let stream = BufReader::new(File::open(&commits).expect("a pipe"));
    for event in Reader::new(stream).expect("a stream") {
        let event = event.expect("whole");
        if let Event::Change { thread, .. } = event {
            *changes.entry(thread).or_default() += 1;
        }
        let is_over = matches!(event, Event::Closed(_));
        if is_over || changes.values().filter(|n| **n >= ENOUGH).count() >= 2 {
            input.end();
        }
        events.push(event);
    }
    input.end();
    let done = child.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    if said.contains("can't be stopped") {
        println!("SKIP: {said}");
        return None;
    }
    let text = String::from_utf8_lossy(&done.stdout).into_owned();
    let mut words = text.split_whitespace();
    let page = words.next().and_then(|w| w.strip_prefix("0x"));
    let page = page.and_then(|w| u64::from_str_radix(w, 16).ok());
    let threads = words
        .map(|w| w.parse().expect("a number"))
        .collect::<Vec<_>>();
    let report = std::fs::read_to_string(&report).expect("it was written");
    Some(Run {
        events,
        page: page.unwrap_or_else(|| panic!("{text}: {said}")),
        threads: threads.try_into().expect("two threads"),
        status: done.status,
        said,
        report: serde_json::from_str(&report).expect("JSON"),
    })
}

/// A change of the stream: thread, `[since, time]`, line, bytes, and those that both changed.
type Changed = (u32, [u64; 2], u64, u64, u64);

fn changes(events: &[Event]) -> Vec<Changed> {
    let change = |event: &Event| match *event {
        Event::Change {
            thread,
            time,
            since,
            line,
            bytes,
            both,
            ..
        } => Some((thread, [since, time], line, bytes, both)),
        _ => None,
    };
    events.iter().filter_map(change).collect()
}

const NAMED: &[&str] = &["--isolate-global", "shared"];

#[test]
fn each_commit_tells_which_bytes_its_thread_changed() {
    let _alone = crate::support::targets::alone();
    let Some(run) = run("commits-own", NAMED, "own") else {
        return;
    };
    assert_eq!(run.status.code(), Some(7), "{}", run.said);
    let changes = changes(&run.events);
    for thread in run.threads {
        let own: Vec<_> = changes.iter().filter(|c| c.0 == thread).collect();
        assert!(own.len() >= ENOUGH, "{own:?}");
        // A thread's windows follow each other.
        for pair in own.windows(2) {
            assert!(pair[0].1[1] <= pair[1].1[0], "{pair:?}");
        }
    }
    for &(thread, [since, time], line, bytes, both) in &changes {
        let of = run.threads.iter().position(|t| *t == thread);
        let expected = 0xff << (8 * of.expect("one of the two threads"));
        assert_eq!((line, bytes, both), (run.page, expected, 0));
        assert!(since < time);
    }
    assert!(run.events.contains(&Event::Object {
        address: run.page,
        bytes: 4096,
        name: "shared".into(),
    }));
    assert_eq!(run.events.last(), Some(&Event::Exit(7 << 8)));

    // Each thread's episodes: begin, the private page, changes within the episode, end. There is no
    // end where no code ran.
    for thread in run.threads {
        let mut begun = None;
        let (mut episodes, mut changed) = (0, false);
        for event in &run.events {
            match *event {
                Event::Begin { thread: t, time } if t == thread => {
                    assert!(!changed, "no end after a change");
                    begun = Some(time);
                    episodes += 1;
                }
                Event::Private {
                    thread: t,
                    time,
                    page,
                } if t == thread => {
                    assert_eq!((Some(time), page), (begun, run.page));
                }
                Event::Change {
                    thread: t, since, ..
                } if t == thread => {
                    assert!(begun.is_some_and(|begun| begun <= since));
                    changed = true;
                }
                Event::End {
                    thread: t, time, ..
                } if t == thread => {
                    assert!(begun.take().is_some_and(|begun| begun <= time));
                    changed = false;
                }
                _ => {}
            }
        }
        assert!(episodes > 0 && !changed);
    }

    // The report counts the same.
    let lost = run.events.iter().any(|e| matches!(e, Event::Lost(_)));
    assert!(!lost, "a program of two lines can't be too fast");
    let bytes: u32 = changes.iter().map(|c| c.3.count_ones()).sum();
    assert_eq!(run.report["committed_bytes"], bytes);
    let turns = changes.windows(2).filter(|w| w[0].0 != w[1].0).count();
    assert_eq!(run.report["interleaved_writes"], turns);
    let page = &run.report["private_pages"][0];
    assert_eq!(page["address"], format!("{:#x}", run.page));
    assert_eq!(page["state"], "private");
    assert_eq!(page["interleaved_writes"], turns);
    let mut writers: Vec<[u64; 3]> = page["threads"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|w| ["id", "commits", "bytes"].map(|key| w[key].as_u64().expect("a number")))
        .collect();
    writers.sort_unstable();
    let mut expected = run.threads.map(|thread| {
        let own = changes.iter().filter(|c| c.0 == thread).count() as u64;
        [thread.into(), own, own * 8]
    });
    expected.sort_unstable();
    assert_eq!(writers, expected);
    let told = format!("{turns} interleaved write");
    assert!(turns == 0 || run.said.contains(&told), "{}", run.said);
}

#[test]
fn bytes_on_lines_of_their_own_are_never_interleaved() {
    let _alone = crate::support::targets::alone();
    let Some(run) = run("commits-apart", NAMED, "apart") else {
        return;
    };
    for (thread, _, line, bytes, _) in changes(&run.events) {
        let of = run.threads.iter().position(|t| *t == thread);
        let expected = run.page + 64 * of.expect("one of the two threads") as u64;
        assert_eq!((line, bytes), (expected, 0xff));
    }
    assert_eq!(run.report["interleaved_writes"], 0);
    assert!(!run.said.contains("interleaved"), "{}", run.said);
}

/// Without the other's bytes the two records would look like false sharing.
#[test]
fn bytes_that_two_threads_change_are_told_as_such() {
    crate::support::targets::side_by_side("commits-same", || {
        let Some(run) = run("commits-same", NAMED, "same") else {
            return Ok(());
        };
        for (_, _, line, bytes, both) in changes(&run.events) {
            assert_eq!((line, bytes), (run.page, 0xff));
            assert!(both == 0 || both == 0xff, "all eight bytes, or none");
        }
        let both = changes(&run.events).iter().any(|c| c.4 != 0);
        both.then_some(())
            .ok_or_else(|| "no commit met another's".into())
    });
}

#[test]
fn pages_found_by_faults_have_their_writers() {
    crate::support::targets::side_by_side("commits-eager", || {
        let Some(run) = run("commits-eager", &["--eager", "--every", "2000"], "own") else {
            return Ok(());
        };
        for thread in run.threads {
            let wrote = run.events.iter().any(|event| {
                matches!(*event, Event::Write { thread: t, address, .. }
                    if t == thread && (run.page..run.page + 16).contains(&address))
            });
            if !wrote {
                return Err(format!("no first write of {thread}"));
            }
        }
        for (thread, _, line, bytes, _) in changes(&run.events) {
            let of = run.threads.iter().position(|t| *t == thread);
            if line == run.page {
                assert_eq!(Some(bytes), of.map(|of| 0xff << (8 * of)));
            }
        }
        Ok(())
    });
}

/// With nothing named: only so is a program isolated that another one executes.
#[test]
fn another_program_is_told_before_its_first_episode() {
    crate::support::targets::side_by_side("commits-again", || {
        let Some(run) = run("commits-again", &[], "again") else {
            return Ok(());
        };
        assert_eq!(run.status.code(), Some(7), "{}", run.said);
        let place = |wanted: fn(&Event) -> bool| run.events.iter().position(wanted);
        let told = place(|e| matches!(e, Event::Program)).expect("it executed itself");
        let Some(begun) = place(|e| matches!(e, Event::Begin { .. })) else {
            return Err(format!("nothing was isolated: {}", run.said));
        };
        assert!(told < begun, "{:?}", run.events);
        for (thread, _, line, bytes, _) in changes(&run.events) {
            let of = run.threads.iter().position(|t| *t == thread);
            assert_eq!(
                (line, Some(bytes)),
                (run.page, of.map(|of| 0xff << (8 * of)))
            );
        }
        Ok(())
    });
}

#[test]
fn a_fork_closes_the_stream_of_commits() {
    let _alone = crate::support::targets::alone();
    let Some(run) = run("commits-forks", NAMED, "forks") else {
        return;
    };
    assert_eq!(run.status.code(), Some(7), "{}", run.said);
    let closed = run
        .events
        .iter()
        .position(|e| matches!(e, Event::Closed(_)));
    let closed = closed.expect("it forked");
    assert_eq!(
        run.events[closed],
        Event::Closed("the program forked".into())
    );
    let begun = |e: &Event| matches!(e, Event::Begin { .. });
    assert!(
        !run.events[closed..].iter().any(begun),
        "no episode after it"
    );
    assert_eq!(run.events.last(), Some(&Event::Exit(7 << 8)));
}

/// What a reader sees of a program of which no thread is ever isolated.
fn native(name: &str, mut command: Command) -> Vec<Event> {
    let commits = file(name);
    let done = command.arg("--commits").arg(&commits);
    let done = done.args(["--", "true"]).output().expect("it runs");
    assert!(done.status.success(), "{done:?}");
    let stream = File::open(&commits).expect("it was written");
    let events = Reader::new(stream).expect("a stream");
    events.map(|event| event.expect("whole")).collect()
}

#[test]
fn a_program_without_threads_has_a_stream_with_an_end() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sunder"));
    command.args(["protect", "--quiet"]);
    assert_eq!(native("commits-true", command), [Event::Exit(0)]);
}

#[test]
fn a_native_run_says_why_in_its_stream() {
    let empty = file("commits-empty.json");
    let mut result = sunder_findings::Findings::default();
    result.program.command = vec!["true".into()];
    std::fs::write(&empty, serde_json::to_string(&result).expect("JSON")).expect("written");
    let mut command = Command::new(env!("CARGO_BIN_EXE_sunder"));
    command.args(["protect", "--quiet", "--from"]).arg(&empty);
    let events = native("commits-native", command);
    let [Event::Closed(why), Event::Exit(0)] = &events[..] else {
        panic!("{events:?}");
    };
    assert!(why.starts_with("there is nothing to isolate"), "{why}");
}

/// The output and status of the program are its own, whatever becomes of the reader.
#[test]
fn a_reader_that_goes_away_is_no_harm() {
    let _alone = crate::support::targets::alone();
    let commits = pipe("commits-gone.commits");
    let mut child = start(&commits, NAMED, "own");
    let input = child.stdin.take();
    let mut reader = File::open(&commits).expect("a pipe");
    let mut head = [0; 64];
    reader.read_exact(&mut head).expect("a head");
    drop(reader);
    drop(input);
    let done = child.wait_with_output().expect("it ends");
    assert_eq!(done.status.code(), Some(7), "{done:?}");
    assert!(done.stdout.starts_with(b"0x"), "{done:?}");
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(said.contains("not all commits could be written"), "{said}");
}

/// Runs the example that counts write sets over a stream.
fn write_sets(commits: &Path) -> Output {
    let source = "../../include/example/writeset.c";
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(source);
    let example = built(&source, "writeset-example");
    let mut command = Command::new(example);
    command.arg(commits).output().expect("it was just built")
}

#[test]
fn the_example_in_c_shows_each_threads_bytes() {
    let _alone = crate::support::targets::alone();
    let commits = pipe("commits-example.commits");
    let kept = file("commits-example");
    let mut child = start(&commits, NAMED, "own");
    let input = Input::of(&mut child);
    // Copies the stream until the two threads have committed often enough, and then the rest.
    let mut stream = File::open(&commits).expect("a pipe");
    let mut all = Vec::new();
    let mut piece = [0; 4096];
    loop {
        let read = stream.read(&mut piece).expect("a pipe");
        if read == 0 {
            break;
        }
        all.extend_from_slice(&piece[..read]);
        let mut seen: BTreeMap<u32, usize> = BTreeMap::new();
        let events = Reader::new(&all[..]).into_iter().flatten();
        for change in changes(&events.filter_map(Result::ok).collect::<Vec<_>>()) {
            *seen.entry(change.0).or_default() += 1;
        }
        if seen.values().filter(|n| **n >= ENOUGH).count() >= 2 {
            input.end();
        }
    }
    input.end();
    let done = child.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&done.stderr);
    if said.contains("can't be stopped") {
        println!("SKIP: {said}");
        return;
    }
    std::fs::write(&kept, &all).expect("written");
    let shown = write_sets(&kept);
    let text = String::from_utf8_lossy(&shown.stdout);
    assert!(shown.status.success(), "{text}");
    let program = String::from_utf8_lossy(&done.stdout);
    let [page, first, second]: [&str; 3] = program
        .split_whitespace()
        .collect::<Vec<_>>()
        .try_into()
        .expect("three words");
    assert!(text.contains(" 1 lines written\n"), "{text}");
    assert!(text.contains(&format!("line {page}  shared+0  ")), "{text}");
    assert!(text.contains(", 0 on the same\n"), "{text}");
    for (thread, at) in [(first, 0), (second, 8)] {
        let bytes: String = (0..64)
            .map(|byte| {
                if (at..at + 8).contains(&byte) {
                    'W'
                } else {
                    '.'
                }
            })
            .collect();
        assert!(text.contains(&format!("{thread}  {bytes}  ")), "{text}");
    }

    // Cut short, foreign and newer streams are no answers.
    let damaged = file("commits-damaged");
    for (name, bytes, status) in [
        ("cut off within a record", all[..all.len() - 9].to_vec(), 1),
        ("without its end", all[..all.len() - 64].to_vec(), 1),
        ("foreign", b"something else entirely".repeat(9), 2),
        ("newer", [&all[..8], &[2][..], &all[9..]].concat(), 2),
        ("empty", Vec::new(), 2),
    ] {
        std::fs::write(&damaged, bytes).expect("written");
        let shown = write_sets(&damaged);
        assert_eq!(shown.status.code(), Some(status), "{name}: {shown:?}");
    }
    // What a later version adds is skipped: a longer head, an unknown kind, a longer record.
    let mut later = all.clone();
    later[12] = 72;
    let mut unknown = vec![0; 72];
    (unknown[0], unknown[1], unknown[4]) = (0xe8, 3, 72);
    later.splice(64..64, [vec![0; 8], unknown].concat());
    std::fs::write(&damaged, later).expect("written");
    let shown_later = write_sets(&damaged);
    assert_eq!(shown_later.stdout, shown.stdout, "{shown_later:?}");
    assert!(shown_later.status.success());
}
