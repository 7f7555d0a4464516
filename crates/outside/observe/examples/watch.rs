//! Prints one burst of hardware watchpoints:
//! `cargo run -p sunder-observe --example watch -- PID ADDRESS…`
//!
//! Watches the 8-byte words at the given addresses in all threads of the
//! process for 50 ms.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::Duration;
use sunder_access::{Address, CodeAddress, ProcessId};
use sunder_observe::watch::{Budget, BurstRequest, Code, CodeBefore, CodeDecoder, Watcher};

/// The bytes before an instruction, without knowing where one begins.
struct Memory(File);

impl CodeBefore for Memory {
    fn code_before(&mut self, ip: CodeAddress) -> Option<Code> {
        let start = CodeAddress(ip.0.checked_sub(15)?);
        let mut bytes = vec![0; 30];
        self.0.read_exact_at(&mut bytes, start.0).ok()?;
        Some(Code {
            start,
            bytes,
            boundary: false,
        })
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let process = ProcessId(
        arguments
            .next()
            .ok_or("usage: watch PID ADDRESS…")?
            .parse()?,
    );
    let words: Vec<Address> = arguments
        .map(|text| u64::from_str_radix(text.trim_start_matches("0x"), 16).map(Address))
        .collect::<Result<_, _>>()?;
    let threads = sunder_observe::proc::threads(process)?;
    let memory = File::open(format!("/proc/{process}/mem"))?;
    let mut decoder = CodeDecoder::new(Memory(memory));
    let budget = Budget {
        advance: Duration::from_millis(20),
        ..Budget::default()
    };
    let mut watcher = Watcher::new(process, budget);
    let request = BurstRequest {
        words,
        threads,
        max_hits_per_thread: 200,
        max_duration: Duration::from_millis(50),
    };
    let burst = watcher.burst(&request, &mut decoder)?;
    for access in &burst.accesses {
        println!(
            "{:>9} ns  thread {}  {:?} of {} bytes at {} by {}",
            access.time.nanoseconds_since(burst.started),
            access.thread,
            access.kind,
            access.width,
            access.address,
            access.instruction,
        );
    }
    println!(
        "{} hits in {} threads, {} complete, {} suppressed, {} guessed; {:?}",
        burst.hits,
        burst.threads,
        burst.complete().len(),
        burst.suppressed,
        burst.guessed,
        watcher.statistics(),
    );
    Ok(())
}
