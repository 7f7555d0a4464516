//! Runs a program and prints the lines that two or more threads accessed, at
//! least one of them writing:
//! `cargo run --release -p sunder-observe --example sample -- PROGRAM ARGS…`,
//! or `-- --pid PID` for a running process, for five seconds.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};
use sunder_access::{Granule, ProcessId, ThreadId};
use sunder_observe::{
    Decoded, Decoder, Event, FrequencyPlan, Launch, PerfSampler, ProcessCode, Wait,
};

const ATTACHED_FOR: Duration = Duration::from_secs(5);

#[derive(Default)]
struct Line {
    accesses: u64,
    threads: BTreeSet<ThreadId>,
    writers: BTreeSet<ThreadId>,
    /// By offset, width, kind and thread.
    words: BTreeMap<(u64, u8, String, u32), u64>,
}

/// The CPU time of this thread, which does not count preemption.
fn cpu_time() -> Duration {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the pointer to `now` is valid.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut now) };
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args_os().skip(1);
    let program = arguments.next().ok_or("usage: sample PROGRAM ARGS…")?;
    let plan = FrequencyPlan::default();
    let (mut sampler, mut child) = if program == "--pid" {
        let number = arguments.next().ok_or("usage: sample --pid PID")?;
        let pid = ProcessId(number.to_string_lossy().parse()?);
        let sampler = PerfSampler::attach(pid, plan, false)?;
        eprintln!("{} threads left out", sampler.unobserved_threads());
        (sampler, None)
    } else {
        let prepared = Launch::new(program).arguments(arguments).prepare()?;
        let sampler = PerfSampler::for_child(prepared.pid(), plan, false)?;
        (sampler, Some(prepared.go()?))
    };

    let mut code = ProcessCode::new();
    let mut decoder = Decoder::new();
    let mut decoded = Decoded::default();
    let mut lines: BTreeMap<u64, Line> = BTreeMap::new();
    let (mut samples, mut without_code, mut near, mut lost) = (0u64, 0u64, 0usize, 0);
    let mut spent = Duration::ZERO;
    let mut sink = |event: Event| {
        code.observe(&event);
        match event {
            Event::Sample(sample) => {
                let begin = cpu_time();
                decoder.decode(&sample, &mut code, &mut decoded);
                spent += cpu_time() - begin;
                samples += 1;
                without_code += u64::from(!decoded.code_found);
                near += decoded.near.len();
            }
            Event::Lost(count) => {
                lost += count;
                return;
            }
            _ => return,
        }
        for access in &decoded.accesses {
            for base in Granule::LINE.bases(access.span()) {
                let line = lines.entry(base.0).or_default();
                line.accesses += 1;
                line.threads.insert(access.thread);
                if access.kind.writes() {
                    line.writers.insert(access.thread);
                }
                let kind = format!("{:?}", access.kind);
                let offset = Granule::LINE.offset(access.address);
                let word = (offset, access.width, kind, access.thread.0);
                *line.words.entry(word).or_default() += 1;
            }
        }
    };
    let begin = Instant::now();
    loop {
        let ended = sampler.wait(Duration::from_millis(20))? == Wait::Ended;
        sampler.drain(&mut sink);
        match &mut child {
            Some(child) => {
                if let Some(status) = child.try_wait()? {
                    eprintln!("{status}");
                    break;
                }
            }
            None if ended || begin.elapsed() > ATTACHED_FOR => break,
            None => {}
        }
    }
    sampler.finish(&mut sink);

    let accesses: u64 = lines.values().map(|line| line.accesses).sum();
    eprintln!(
        "{samples} samples ({without_code} without code, {lost} lost), \
         {accesses} exact accesses, {near} near; {:.0} ns a sample",
        spent.as_nanos() as f64 / samples.max(1) as f64
    );
    let mut shared: Vec<_> = lines
        .iter()
        .filter(|(_, line)| line.threads.len() > 1 && !line.writers.is_empty())
        .collect();
    shared.sort_by_key(|(_, line)| std::cmp::Reverse(line.accesses));
    for (base, line) in shared.iter().take(10) {
        let (threads, writers) = (line.threads.len(), line.writers.len());
        eprintln!(
            "{base:#x}: {} accesses, {threads} threads, {writers} write",
            line.accesses
        );
        let mut words: Vec<_> = line.words.iter().collect();
        words.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
        for ((offset, width, kind, thread), count) in words.iter().take(8) {
            eprintln!("    +{offset:<2} {width:>2} bytes {kind:<6} thread {thread} {count} times");
        }
    }
    Ok(())
}
