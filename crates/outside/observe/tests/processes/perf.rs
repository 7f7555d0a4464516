//! The sampler on real processes. Nothing here depends on the speed or load of the machine: targets
//! run until the test has the events that it waits for, and only a failure takes as long as
//! `PATIENCE`.

use crate::support::{compile, perf_allowed};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, Permissions};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use sunder_access::{ProcessId, ThreadId};
use sunder_observe::perf::{FirstEvent, paranoid_level, system_refusal};
use sunder_observe::{
    Event, FrequencyPlan, Launch, ObserveError, PerfRefusal, PerfSampler, RawSample, Wait,
};

const PATIENCE: Duration = Duration::from_secs(20);

/// Drains until `enough` is true; panics after [`PATIENCE`].
fn observe(sampler: &mut PerfSampler, mut enough: impl FnMut(&Event) -> bool) {
    let begin = Instant::now();
    let mut done = false;
    while !done {
        assert!(
            begin.elapsed() < PATIENCE,
            "the expected events did not come in time"
        );
        sampler.wait(Duration::from_millis(5)).unwrap();
        sampler.drain(&mut |event| done |= enough(&event));
    }
}

fn spin(directory: &Path) -> Option<std::path::PathBuf> {
    compile(directory, "spin", &["-O1"])
}

/// Runs `program` and reads the numbers of its two threads.
fn start_spinning(program: &Path, arguments: &[&str]) -> (Child, BTreeSet<u32>) {
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let threads = (0..2)
        .map(|_| {
            let line = lines.next().unwrap().unwrap();
            line.split(' ').next().unwrap().parse().unwrap()
        })
        .collect();
    (child, threads)
}

fn end(mut child: Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

/// The spinning program in a folder of its own; `None` where it can't be compiled or sampled.
fn spin_to_sample() -> Option<(tempfile::TempDir, std::path::PathBuf)> {
    let directory = tempfile::tempdir().unwrap();
    let program = spin(directory.path())?;
    perf_allowed().then_some((directory, program))
}

/// A program that was launched to be sampled.
struct Sampled {
    pid: ProcessId,
    sampler: PerfSampler,
    child: sunder_observe::Child,
}

impl Sampled {
    fn start(launch: Launch, plan: FrequencyPlan, follow: bool) -> Self {
        let prepared = launch.prepare().unwrap();
        let pid = prepared.pid();
        let sampler = PerfSampler::for_child(pid, plan, follow).unwrap();
        let child = prepared.go().unwrap();
        Self {
            pid,
            sampler,
            child,
        }
    }

    fn kill(&mut self) {
        // SAFETY: a child of ours that has not been waited for.
        unsafe { libc::kill(self.pid.0 as i32, libc::SIGKILL) };
        self.child.wait().unwrap();
    }
}

#[test]
fn a_launched_program_is_seen_from_its_first_mapping_to_the_end_of_its_threads() {
    let Some((_directory, program)) = spin_to_sample() else {
        return;
    };
    let mut run = Sampled::start(Launch::new(&program), FrequencyPlan::fixed(1000), false);
    let pid = run.pid;

    let mut events = Vec::new();
    let mut sampled = BTreeSet::new();
    observe(&mut run.sampler, |event| {
        events.push(event.clone());
        if let Event::Sample(sample) = event {
            sampled.insert(sample.thread);
        }
        // Two spinning threads; the first only maps and waits.
        sampled.iter().filter(|thread| thread.0 != pid.0).count() == 2
    });
    run.kill();
    while run.sampler.wait(Duration::from_secs(1)).unwrap() != Wait::Ended {}
    run.sampler.finish(&mut |event| events.push(event));

    let path = program.to_str().unwrap();
    assert!(events.iter().any(|event| matches!(event,
        Event::Map { mapping, .. } if mapping.path == path && mapping.execute)));
    assert!(events.iter().any(|event| matches!(event,
        Event::ThreadName { name, exec: true, .. } if name == "spin")));
    let ended: BTreeSet<_> = events
        .iter()
        .filter_map(|event| match event {
            Event::ThreadEnd { thread, .. } => Some(*thread),
            _ => None,
        })
        .collect();
    for thread in sampled {
        assert!(ended.contains(&thread));
        let start =
            |event: &Event| matches!(event, Event::ThreadStart { thread: t, .. } if *t == thread);
        let sample = |event: &Event| matches!(event, Event::Sample(s) if s.thread == thread);
        if thread.0 != pid.0 {
            // In the order of time: the start before the first sample.
            assert!(events.iter().position(start) < events.iter().position(sample));
        }
    }
    assert!(samples(&events).all(|sample| sample.process == pid && sample.period_ns == 1_000_000));
    assert_eq!(run.sampler.samples_without_registers(), 0);
}

fn samples(events: &[Event]) -> impl Iterator<Item = &RawSample> {
    events.iter().filter_map(|event| match event {
        Event::Sample(sample) => Some(sample),
        _ => None,
    })
}

/// Threads with inherited events follow the change of frequency, in both directions: each has
/// samples of the first period, then of the second, and none of the first after those of the
/// second.
#[test]
fn a_change_of_frequency_reaches_threads_that_inherited() {
    let Some((_directory, program)) = spin_to_sample() else {
        return;
    };
    let plan = FrequencyPlan::new(vec![
        (Duration::ZERO, 1000),
        (Duration::from_millis(300), 500),
        (Duration::from_millis(600), 2000),
    ]);
    let mut run = Sampled::start(Launch::new(&program), plan, false);
    let pid = run.pid;
    let mut periods: BTreeMap<ThreadId, Vec<u64>> = BTreeMap::new();
    observe(&mut run.sampler, |event| {
        if let Event::Sample(sample) = event
            && sample.thread.0 != pid.0
        {
            let seen = periods.entry(sample.thread).or_default();
            if seen.last() != Some(&sample.period_ns) {
                seen.push(sample.period_ns);
            }
        }
        periods.len() == 2 && periods.values().all(|seen| seen.last() == Some(&500_000))
    });
    assert_eq!(run.sampler.frequency(), 2000);
    run.kill();
    for seen in periods.values() {
        // A thread that does not run during one step has no samples of it.
        let mut wanted = vec![1_000_000, 2_000_000, 500_000];
        wanted.retain(|period| seen.contains(period));
        assert_eq!(seen, &wanted);
    }
    assert!(periods.values().any(|seen| seen.len() > 1), "{periods:?}");
}

/// By the watchful plan, samples are dense once a line is in doubt, and not before.
#[test]
fn samples_are_dense_after_an_alert_and_not_before() {
    let Some((_directory, program)) = spin_to_sample() else {
        return;
    };
    let mut run = Sampled::start(Launch::new(&program), FrequencyPlan::watchful(), false);
    let pid = run.pid;
    assert_eq!(run.sampler.frequency(), 99);
    let of_others = |event: &Event| match event {
        Event::Sample(sample) if sample.thread.0 != pid.0 => Some(sample.period_ns),
        _ => None,
    };
    let mut periods = Vec::new();
    observe(&mut run.sampler, |event| {
        periods.extend(of_others(event));
        periods.len() >= 20
    });
    assert!(run.sampler.calm().is_some() && run.sampler.alerted().is_none());
    assert!(
        periods.iter().all(|&period| period > 1_000_000),
        "{periods:?}"
    );
    run.sampler.alert();
    assert!(run.sampler.calm().is_none() && run.sampler.alerted().is_some());
    assert_eq!(run.sampler.frequency(), 4000);
    let mut dense = BTreeSet::new();
    observe(&mut run.sampler, |event| {
        if let Event::Sample(sample) = event
            && sample.period_ns == 250_000
        {
            dense.insert(sample.thread);
        }
        dense.len() == 2
    });
    run.kill();
}

/// A single computing thread can't contend.
#[test]
fn a_program_with_one_thread_is_hardly_sampled() {
    if !perf_allowed() {
        return;
    }
    let endless = ["-c", "while :; do :; done"];
    let mut run = Sampled::start(
        Launch::new("sh").arguments(endless),
        FrequencyPlan::default(),
        false,
    );
    let mut periods = Vec::new();
    observe(&mut run.sampler, |event| {
        if let Event::Sample(sample) = event {
            periods.push(sample.period_ns);
        }
        periods.len() >= 5
    });
    run.kill();
    assert!(
        periods.iter().all(|&period| period == 1_000_000_000 / 99),
        "{periods:?}"
    );
    assert!(run.sampler.calm().is_none() && run.sampler.alerted().is_none());
}

/// A caller that does not wait for the machine's first event can attach to what runs by then.
#[test]
fn the_first_event_opens_beside_others() {
    if !perf_allowed() {
        return;
    }
    let first = FirstEvent::open().expect("allowed");
    let begin = Instant::now();
    while !first.is_open() {
        assert!(begin.elapsed() < PATIENCE, "the kernel did not answer");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn attaching_reports_existing_threads_and_mappings() {
    attached_by(|pid, plan| Some(PerfSampler::attach(pid, plan, false).unwrap()));
}

/// Events on CPUs deliver what events on the threads do, and nothing of other processes.
#[test]
fn events_on_cpus_report_the_same() {
    attached_by(|pid, plan| {
        let sampler = PerfSampler::attach_on_cpus(pid, plan).unwrap();
        match &sampler {
            Some(sampler) => assert!(sampler.is_on_cpus()),
            None => println!("SKIP: the kernel refuses events of the whole machine"),
        }
        sampler
    });
}

/// A program whose threads take turns thousands of times a second is sampled by events on CPUs after a
/// while; samples of both threads go on, and its end is noticed.
#[test]
fn what_switches_often_is_sampled_by_events_on_cpus_after_a_while() {
    let directory = tempfile::tempdir().unwrap();
    let Some(program) = compile(directory.path(), "takes_turns", &["-O1"]) else {
        return;
    };
    if !perf_allowed() {
        return;
    }
    if let Some(refusal) = system_refusal() {
        println!("SKIP: the kernel refuses events of the whole machine: {refusal}");
        return;
    }
    let mut run = Sampled::start(Launch::new(&program), FrequencyPlan::fixed(500), false);
    let begin = Instant::now();
    let mut before = BTreeSet::new();
    while !run.sampler.is_on_cpus() {
        if begin.elapsed() > PATIENCE {
            // Others keep the CPUs busy, whom the interrupts of such events would cost more.
            println!("SKIP: the machine is too busy for events on CPUs");
            return run.kill();
        }
        run.sampler.wait(Duration::from_millis(5)).unwrap();
        run.sampler.drain(&mut |event| {
            if let Event::Sample(sample) = event {
                before.insert(sample.thread);
            }
        });
    }
    let mut since = BTreeSet::new();
    let pid = run.pid;
    observe(&mut run.sampler, |event| {
        if let Event::Sample(sample) = event {
            assert_eq!(sample.process, pid, "of another process");
            since.insert(sample.thread);
        }
        since.len() == 2
    });
    assert!(before.is_subset(&since));
    run.kill();
    let begin = Instant::now();
    while run.sampler.wait(Duration::from_secs(1)).unwrap() != Wait::Ended {
        assert!(begin.elapsed() < PATIENCE, "the end was not reported");
        run.sampler.drain(&mut |_| {});
    }
}

fn attached_by(attach: impl Fn(ProcessId, FrequencyPlan) -> Option<PerfSampler>) {
    let Some((_directory, program)) = spin_to_sample() else {
        return;
    };
    let (child, threads) = start_spinning(&program, &[]);
    let pid = ProcessId(child.id());
    for plan in [FrequencyPlan::fixed(1000), FrequencyPlan::default()] {
        let Some(mut sampler) = attach(pid, plan) else {
            end(child);
            return;
        };
        assert_eq!(sampler.unobserved_threads(), 0);
        let mut sampled = BTreeSet::new();
        let mut started = BTreeSet::new();
        let mut mapped = false;
        observe(&mut sampler, |event| {
            match event {
                Event::Sample(sample) => {
                    assert_eq!(sample.process, pid);
                    sampled.insert(sample.thread.0);
                }
                Event::ThreadStart { thread, .. } => drop(started.insert(thread.0)),
                Event::Map { mapping, .. } => {
                    mapped |= mapping.execute && mapping.path == program.to_str().unwrap();
                }
                _ => {}
            }
            threads.is_subset(&sampled)
        });
        assert!(threads.is_subset(&started) && started.contains(&pid.0) && mapped);
    }
    let Some(mut sampler) = attach(pid, FrequencyPlan::default()) else {
        end(child);
        return;
    };
    end(child);
    let begin = Instant::now();
    while sampler.wait(Duration::from_secs(1)).unwrap() != Wait::Ended {
        assert!(begin.elapsed() < PATIENCE, "the end was not reported");
    }
    let mut ended = BTreeSet::new();
    sampler.finish(&mut |event| {
        if let Event::ThreadEnd { thread, .. } = event {
            ended.insert(thread.0);
        }
    });
    assert!(threads.is_subset(&ended));
}

/// The spinning child process is sampled only when children are followed.
#[test]
fn children_are_followed_on_demand() {
    let Some((_directory, program)) = spin_to_sample() else {
        return;
    };
    for follow in [false, true] {
        let mut run = Sampled::start(
            Launch::new(&program).arguments(["fork"]),
            FrequencyPlan::fixed(1000),
            follow,
        );
        let pid = run.pid;
        let mut others = BTreeSet::new();
        let mut own = 0;
        observe(&mut run.sampler, |event| {
            if let Event::Sample(sample) = event {
                if sample.process == pid {
                    own += 1;
                } else {
                    others.insert(sample.process);
                }
            }
            // The forked process spins since before the first thread begins.
            own > 200 && (!follow || !others.is_empty())
        });
        assert_eq!(others.len(), usize::from(follow));
        // The forked process dies with its parent.
        run.kill();
    }
}

#[test]
fn a_process_that_is_not_there_is_reported() {
    let nobody = ProcessId(1 << 23);
    for result in [
        PerfSampler::for_child(nobody, FrequencyPlan::default(), false),
        PerfSampler::attach(nobody, FrequencyPlan::default(), false),
    ] {
        match result {
            Err(ObserveError::NoSuchProcess(process)) => assert_eq!(process, nobody),
            Err(ObserveError::PerfRefused(why)) => println!("SKIP: {why}"),
            other => panic!("{other:?}"),
        }
    }
}

/// An ordinary user at `perf_event_paranoid` 2 may do all of this with own
/// programs: the other tests of this file run again as `nobody`.
#[test]
fn an_unprivileged_user_gets_the_same() {
    // SAFETY: no preconditions.
    if unsafe { libc::geteuid() } != 0 {
        println!("SKIP: only root can become another user");
        return;
    }
    if std::env::var_os("SUNDER_TEST_AS_NOBODY").is_some() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    std::fs::set_permissions(directory.path(), Permissions::from_mode(0o777)).unwrap();
    // The user `nobody` may not be able to read the test program itself.
    let copy = directory.path().join("tests");
    // Copied by a process of its own: a child of another test would inherit our descriptor.
    let copied = Command::new("cp")
        .arg(std::env::current_exe().unwrap())
        .arg(&copy)
        .status();
    assert!(copied.unwrap().success());
    let log = directory.path().join("log");
    let status = Command::new("setpriv")
        .args([
            "--reuid=65534",
            "--regid=65534",
            "--clear-groups",
            "--inh-caps=-all",
        ])
        .arg(&copy)
        .args(["perf::", "--nocapture", "--test-threads=1"])
        .env("SUNDER_TEST_AS_NOBODY", "1")
        .env("TMPDIR", directory.path())
        .stdout(File::create(&log).unwrap())
        .stderr(Stdio::inherit())
        .status();
    match status {
        Ok(status) => {
            let log = std::fs::read_to_string(&log).unwrap();
            print!("{log}");
            assert!(status.success());
        }
        Err(error) => println!("SKIP: cannot run setpriv: {error}"),
    }
}

/// Forbids `perf_event_open` to this thread only, as container runtimes do to
/// whole processes.
fn forbid_perf(errno: i32) -> bool {
    const LOAD_WORD: u16 = 0x20; // BPF_LD | BPF_W | BPF_ABS
    const JUMP_IF_EQUAL: u16 = 0x15; // BPF_JMP | BPF_JEQ | BPF_K
    const RETURN: u16 = 0x06; // BPF_RET | BPF_K
    let step = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let mut filter = [
        step(LOAD_WORD, 0, 0, 0), // the number of the system call
        step(JUMP_IF_EQUAL, 0, 1, libc::SYS_perf_event_open as u32),
        step(RETURN, 0, 0, libc::SECCOMP_RET_ERRNO | errno as u32),
        step(RETURN, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog {
        len: filter.len() as u16,
        filter: filter.as_mut_ptr(),
    };
    // SAFETY: a valid program, for this thread.
    unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &program) == 0
    }
}

#[test]
fn refusals_name_the_filter_or_the_missing_call() {
    if paranoid_level().is_none_or(|level| level > 2) {
        println!("SKIP: here perf is refused for another reason");
        return;
    }
    for (errno, wanted) in [
        (libc::EPERM, PerfRefusal::Filtered),
        (libc::ENOSYS, PerfRefusal::Missing),
    ] {
        let refused = std::thread::spawn(move || {
            if !forbid_perf(errno) {
                println!("SKIP: no seccomp filter can be set here");
                return None;
            }
            let prepared = Launch::new("true").prepare().unwrap();
            let plan = FrequencyPlan::default();
            PerfSampler::for_child(prepared.pid(), plan, false).err()
        });
        match refused.join().unwrap() {
            None => {}
            Some(ObserveError::PerfRefused(why)) => assert_eq!(why, wanted),
            Some(other) => panic!("{other}"),
        }
    }
}
