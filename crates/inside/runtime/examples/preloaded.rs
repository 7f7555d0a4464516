//! Runs a command with the runtime preloaded and a segment of its own, and says
//! on stderr what it cost: for looking at a program by hand.
//!
//! `cargo run -p sunder-runtime --example preloaded -- LIBRARY none|heap|HERTZ COMMAND…`

// Runs outside the target.
#![allow(clippy::disallowed_methods, clippy::disallowed_macros)]

use std::process::{Command, ExitCode};
use std::time::Instant;
use sunder_wire::{Segment, SegmentOptions};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, library, mode, program, rest @ ..] = &arguments[..] else {
        eprintln!("usage: preloaded LIBRARY none|heap|HERTZ COMMAND…");
        return ExitCode::FAILURE;
    };
    let options = SegmentOptions {
        heap: mode == "heap",
        timer_hz: mode.parse().ok(),
        ..SegmentOptions::default()
    };
    let segment = match Segment::create(&options) {
        Ok(segment) => segment,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
    };
    let mut command = Command::new(program);
    command.args(rest);
    if mode != "none" {
        let user = std::env::var_os("LD_PRELOAD");
        for (name, value) in segment.environment(library.as_ref(), user.as_deref()) {
            command.env(name, value.unwrap_or_default());
        }
    }
    let start = Instant::now();
    let status = command.status();
    let wall = start.elapsed();
    let mut samples = 0;
    segment.drain_samples(&mut |_| samples += 1);
    // SAFETY: plain data, filled by the call.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_CHILDREN, &raw mut usage);
        usage
    };
    eprintln!(
        "{wall:?} user {}.{:06} s, system {}.{:06} s, peak {} KiB, {samples} samples left, {:?}",
        usage.ru_utime.tv_sec,
        usage.ru_utime.tv_usec,
        usage.ru_stime.tv_sec,
        usage.ru_stime.tv_usec,
        usage.ru_maxrss,
        segment.status()
    );
    match status.ok().and_then(|s| s.code()) {
        Some(code) => ExitCode::from(code as u8),
        None => ExitCode::FAILURE,
    }
}
