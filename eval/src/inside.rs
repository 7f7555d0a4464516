//! The memory that a remedy adds to a running program: the difference between just before its
//! coming and a moment after. Called by `repair`, for runs that are not timed. Reads only the
//! kernel's list of the program's mappings.

use anyhow::{Context, Result};
use std::io::Read;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Pause between two readings of the list.
const PAUSE: Duration = Duration::from_millis(20);
/// This long after a move, threads execute their copies of code; the program's own memory grows
/// little in this time.
const SETTLING_TIME: Duration = Duration::from_millis(200);

/// The contents of one reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Reading {
    /// Private memory of all mappings, and memory shared with the tool.
    kib: u64,
    /// Whether the remedy is there: the file that it shares with the tool is mapped.
    came: bool,
    /// Whether something was moved: there are copies of code in the shared file.
    moved: bool,
}

/// Runs a command that starts a program; what the command writes to standard error, and the KiB
/// that it adds to the program. `None` if nothing was moved, or if the program ended too early.
///
/// # Errors
/// If the command can't be run.
pub fn run(command: &mut Command) -> Result<(String, Option<u64>)> {
    let piped = command.stdout(Stdio::null()).stderr(Stdio::piped());
    let mut tool = piped.spawn().context("the command can't be started")?;
    let (mut before, mut moved, mut more) = (None, None, None);
    while tool.try_wait()?.is_none() {
        match read_mappings(tool.id()) {
            Some(reading) if !reading.came => before = Some(reading.kib),
            Some(reading) if reading.moved => {
                let since = *moved.get_or_insert_with(Instant::now);
                if more.is_none() && since.elapsed() >= SETTLING_TIME {
                    more = before.map(|before: u64| reading.kib.saturating_sub(before));
                }
            }
            _ => {}
        }
        std::thread::sleep(PAUSE);
    }
    let mut text = String::new();
    // The tool has ended and has written little, so all of it is in the pipe.
    let mut pipe = tool.stderr.take().context("it has a pipe")?;
    pipe.read_to_string(&mut text)?;
    Ok((text, more))
}

/// Reads the mappings of the program that the tool has started.
fn read_mappings(tool: u32) -> Option<Reading> {
    let children = format!("/proc/{tool}/task/{tool}/children");
    let children = std::fs::read_to_string(children).ok()?;
    let program = children.split_whitespace().next()?;
    let text = std::fs::read_to_string(format!("/proc/{program}/smaps")).ok()?;
    (!text.is_empty()).then(|| parse(&text))
}

/// Parses the kernel's list of mappings.
fn parse(text: &str) -> Reading {
    let mut reading = Reading {
        kib: 0,
        came: false,
        moved: false,
    };
    let mut shared = false;
    for line in text.lines() {
        let mut words = line.split_whitespace();
        let (first, second) = (words.next().unwrap_or_default(), words.next());
        let number = || second.and_then(|n| n.parse().ok()).unwrap_or(0);
        match first {
            "Anonymous:" => reading.kib += number(),
            "Rss:" if shared => reading.kib += number(),
            name if name.ends_with(':') => {}
            _ => {
                shared = line.contains("sunder-remap");
                reading.came |= shared;
                reading.moved |= shared && second == Some("r-xs");
            }
        }
    }
    reading
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn anonymous_memory_and_memory_shared_with_the_tool_count() {
        let before = "5000-6000 r-xp 00000000 00:00 1 /usr/bin/program\n\
                      Size: 4 kB\nRss: 4 kB\nAnonymous: 0 kB\nVmFlags: rd ex\n\
                      7000-9000 rw-p 00000000 00:00 0 [heap]\n\
                      Rss: 8 kB\nAnonymous: 8 kB\n";
        let own = Reading {
            kib: 8,
            came: false,
            moved: false,
        };
        assert_eq!(parse(before), own);
        let shared = "a000-b000 rw-s 00000000 00:01 9 /memfd:sunder-remap (deleted)\n\
                      Rss: 44 kB\nAnonymous: 0 kB\n";
        let come = Reading {
            kib: 52,
            came: true,
            moved: false,
        };
        assert_eq!(parse(&format!("{before}{shared}")), come);
        let code = "c000-d000 r-xs 00000000 00:01 9 /memfd:sunder-remap (deleted)\n\
                    Rss: 4 kB\nAnonymous: 0 kB\n";
        let moved = Reading {
            kib: 56,
            came: true,
            moved: true,
        };
        assert_eq!(parse(&format!("{before}{shared}{code}")), moved);
    }
}
