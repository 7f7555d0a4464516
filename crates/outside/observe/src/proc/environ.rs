//! `environ`: the variables with which a process's program was started. They may be secrets: only the one
//! that is asked for is kept.

use super::folder::path;
use crate::pending::PendingRead;
use std::fs::File;
use std::io::Read;
use sunder_access::ProcessId;

/// The most bytes of variables that are read. A process may say that all of its memory is variables
/// (`PR_SET_MM_MAP`).
const MOST_BYTES: u64 = 2 << 20;

/// The value of a variable; `None` if there is none, it can't be read, or it is not UTF-8.
pub fn variable(process: ProcessId, name: &str) -> Option<String> {
    let _reading = PendingRead::begin(process);
    let file = File::open(path(process, "environ")).ok()?;
    let mut text = Vec::new();
    file.take(MOST_BYTES).read_to_end(&mut text).ok()?;
    let mut values = text
        .split(|&byte| byte == 0)
        .filter_map(|one| one.strip_prefix(name.as_bytes())?.strip_prefix(b"="));
    String::from_utf8(values.next()?.to_vec()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn a_variable_is_found_by_its_whole_name() {
        let child = Command::new("cat")
            .env_clear()
            .env("WORDS", "a=b, c")
            .env("WORD", "one")
            .env("EMPTY", "")
            .stdin(Stdio::piped())
            .spawn();
        let mut child = child.expect("it starts");
        // Between fork and exec, variables are still ours.
        let id = ProcessId(child.id());
        let of = |name| variable(id, name);
        while of("WORD").is_none() {
            std::thread::yield_now();
        }
        assert_eq!(of("WORD").as_deref(), Some("one"));
        assert_eq!(of("WORDS").as_deref(), Some("a=b, c"));
        assert_eq!(of("EMPTY").as_deref(), Some(""));
        assert_eq!((of("WOR"), of("ORDS")), (None, None));
        drop(child.stdin.take());
        child.wait().expect("our child");
        assert_eq!(of("WORD"), None);
    }
}
