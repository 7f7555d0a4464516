//! Which bytes of which line each thread of a program wrote while it was isolated:
//!
//! ```text
//! cargo run -p sunder --example writeset -- ./bench 4
//! ```
//!
//! The program runs under `sunder protect`, and its commits are read from a file afterwards. A tool
//! that wants them while the program runs gives a named pipe, and reads it in a thread.

use std::collections::BTreeMap;
use std::error::Error;
use std::ffi::OsString;
use std::fs::File;
use std::io::BufReader;
use std::path::Path;
use sunder::commits::{Event, Reader};

/// What one thread wrote to one line.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// A bit for each byte.
    pub bytes: u64,
    /// In how many commits.
    pub commits: u64,
}

/// By the line's address and the thread's number.
pub type WriteSets = BTreeMap<(u64, u32), Written>;

/// Reads the write sets of all threads from a stream of commits. The second figure is that of
/// records that are missing in it.
///
/// # Errors
/// If the stream is damaged, or not complete.
pub fn write_sets(commits: &Path) -> Result<(WriteSets, u64), Box<dyn Error>> {
    let (mut sets, mut missing) = (WriteSets::new(), 0);
    for event in Reader::new(BufReader::new(File::open(commits)?))? {
        match event? {
            Event::Change {
                thread,
                line,
                bytes,
                ..
            } => {
                let written = sets.entry((line, thread)).or_default();
                written.bytes |= bytes;
                written.commits += 1;
            }
            // The process executes another program, whose addresses are others.
            Event::Program => sets.clear(),
            Event::Lost(records) => missing += records,
            Event::Exit(_) => return Ok((sets, missing)),
            _ => {}
        }
    }
    Err("the stream has no end: sunder was killed".into())
}

/// Runs the program of the command line, and shows the write sets.
#[allow(dead_code, reason = "a test uses the functions above")]
fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args_os().skip(1);
    let program: OsString = arguments.next().ok_or("name a program")?;
    let file = std::env::temp_dir().join(format!("writeset-{}.commits", std::process::id()));
    let done = sunder::Protect::new(program)
        .args(arguments)
        .with_commits(&file)
        .run()?;
    let read = write_sets(&file);
    std::fs::remove_file(&file)?;
    let (sets, missing) = read?;
    eprintln!(
        "{}; {missing} records missing",
        done.line.unwrap_or_default()
    );
    for ((line, thread), written) in sets {
        let bytes = (0..64).map(|byte| {
            if written.bytes >> byte & 1 == 1 {
                'W'
            } else {
                '.'
            }
        });
        let bytes: String = bytes.collect();
        println!(
            "{line:#x}  {thread:>7}  {bytes}  {} commits",
            written.commits
        );
    }
    Ok(())
}
