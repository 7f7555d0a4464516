//! `schedstat`: how long a thread ran and waited.

use super::folder::Folder;
use std::fs;
use std::time::Duration;
use sunder_access::{ProcessId, ThreadId};

/// How long `thread` was ready to run and had no processor, since it began; `None` if it has ended,
/// or the kernel does not count it.
pub fn waited_for_processor(process: ProcessId, thread: ThreadId) -> Option<Duration> {
    let file = Folder::Thread(process, thread).path("schedstat");
    parse(&fs::read_to_string(file).ok()?)
}

/// The second of three numbers, in ns.
fn parse(text: &str) -> Option<Duration> {
    let waited = text.split_whitespace().nth(1)?.parse().ok()?;
    Some(Duration::from_nanos(waited))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_number_counts_and_damage_gives_none() {
        assert_eq!(
            parse("17 2287855 1\n"),
            Some(Duration::from_nanos(2_287_855))
        );
        assert_eq!(parse("17"), None);
        assert_eq!(parse("17 x 1"), None);
        assert_eq!(
            waited_for_processor(ProcessId(5_000_000), ThreadId(5_000_000)),
            None
        );
    }
}
