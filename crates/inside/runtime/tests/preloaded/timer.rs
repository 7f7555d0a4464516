//! Samples by CPU-time timers.

use crate::harness::{Waiting, functions, preload, program};
use std::collections::BTreeMap;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use sunder_wire::{Segment, SegmentOptions, TimerSample};

fn timer_segment(hz: u32) -> Segment {
    Segment::create(&SegmentOptions {
        timer_hz: Some(hz),
        ..SegmentOptions::default()
    })
    .expect("memory file")
}

#[test]
fn every_thread_is_sampled_with_its_registers() {
    let path = program("spins");
    let functions = functions(&path);
    let segment = timer_segment(250);
    let run = Waiting::start(preload(&mut Command::new(&path), &segment));
    // Each line: a thread and the number that it holds in rbx and r15 while it
    // spins in `spin`.
    let threads: BTreeMap<u32, u64> = run
        .lines
        .iter()
        .map(|line| {
            let (tid, number) = line.split_once(' ').expect("two words");
            (
                tid.parse().expect("a number"),
                number.parse().expect("a number"),
            )
        })
        .collect();
    assert_eq!(threads.len(), 4);
    let (start, size, _) = *functions
        .iter()
        .find(|(_, _, name)| name == "spin")
        .map(|(a, b, c)| (*a, *b, c))
        .as_ref()
        .expect("there");
    let mut seen: BTreeMap<u32, u32> = BTreeMap::new();
    // The threads spin until the test ends them; a minute is far more than four samples of each
    // take.
    let deadline = Instant::now() + Duration::from_secs(60);
    while !threads.keys().all(|t| seen.get(t).is_some_and(|&n| n >= 4)) {
        assert!(Instant::now() < deadline, "{seen:?} {:?}", segment.status());
        std::thread::sleep(Duration::from_millis(20));
        segment.drain_samples(&mut |sample: TimerSample| {
            let in_spin = sample.ip.0.wrapping_sub(start) < size;
            let Some(&number) = threads.get(&sample.thread.0).filter(|_| in_spin) else {
                return;
            };
            assert_eq!(sample.registers[3], number, "rbx");
            assert_eq!(sample.registers[15], !number, "r15");
            assert!(sample.period_ns > 0 && sample.time.0 > 0);
            *seen.entry(sample.thread.0).or_default() += 1;
        });
    }
    segment.set_timer_hz(0);
    run.finish();
    assert_eq!(segment.status().timers_refused, 0);
}

fn assert_runs(name: &str) -> Segment {
    let segment = timer_segment(1000);
    let output = preload(&mut Command::new(program(name)), &segment)
        .stdin(Stdio::null())
        .output()
        .expect("starts");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{:?}: {text}", output.status);
    segment
}

#[test]
fn a_program_keeps_its_profiling_signal() {
    let segment = assert_runs("profiles");
    assert!(!segment.status().signal_taken);
}

#[test]
fn a_program_that_takes_every_signal_gets_every_signal() {
    let segment = assert_runs("takes_signals");
    assert!(segment.status().signal_taken);
}

#[test]
fn a_program_that_waits_for_every_signal_gets_only_its_own() {
    assert_runs("waits_for_signals");
}
