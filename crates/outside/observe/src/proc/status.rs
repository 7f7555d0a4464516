//! `status`: state, parent, users, and what confines a process or thread.

use super::folder::{Folder, path, read};
use super::threads;
use crate::ObserveError;
use std::io;
use sunder_access::ProcessId;

/// What `status` says of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// The state letter: `R`, `S`, `D`, `T`, `t`, `Z`, `X`, `I`.
    pub state: char,
    /// Its parent.
    pub parent: ProcessId,
    /// The real user.
    pub user: u32,
    /// The effective user.
    pub effective_user: u32,
    /// How many threads it has.
    pub threads: u32,
}

/// The number under which memory, files and folders of `process` are told: its own, or that of a
/// living thread where the first has ended (`pthread_exit` in `main`) and took its number's with it.
pub fn living_number(process: ProcessId) -> ProcessId {
    if !status(process).is_ok_and(|status| is_over(status.state)) {
        return process;
    }
    let others = threads(process).unwrap_or_default();
    let living = others
        .into_iter()
        .map(|thread| ProcessId(thread.0))
        .find(|&thread| status(thread).is_ok_and(|status| !is_over(status.state)));
    living.unwrap_or(process)
}

const fn is_over(state: char) -> bool {
    matches!(state, 'Z' | 'X')
}

/// State, parent and users.
///
/// # Errors
/// If the process is gone.
pub fn status(process: ProcessId) -> Result<Status, ObserveError> {
    let text = read(process, "status")?;
    parse_status(&String::from_utf8_lossy(&text)).ok_or_else(|| ObserveError::Proc {
        path: path(process, "status"),
        source: io::ErrorKind::InvalidData.into(),
    })
}

fn parse_status(text: &str) -> Option<Status> {
    let field = |name: &str| field(text, name);
    let mut users = field("Uid")?.split_whitespace();
    Some(Status {
        state: field("State")?.chars().next()?,
        parent: ProcessId(field("PPid")?.parse().ok()?),
        user: users.next()?.parse().ok()?,
        effective_user: users.next()?.parse().ok()?,
        threads: field("Threads")?.parse().ok()?,
    })
}

/// Whether it exists and still executes: a zombie does not, unless only its first thread has ended.
pub fn is_alive(process: ProcessId) -> bool {
    status(process).is_ok_and(|status| !is_over(status.state) || status.threads > 1)
}

/// The fields of one `status` file, by name, as they were when it was read.
#[derive(Clone, Debug, Default)]
pub struct Fields(String);

impl Fields {
    /// Those of a process or thread.
    ///
    /// # Errors
    /// If they can't be read.
    pub fn read(folder: Folder) -> io::Result<Self> {
        folder.text("status").map(Self)
    }

    /// The value of a field; empty if there is none.
    pub fn get(&self, name: &str) -> &str {
        field(&self.0, name).unwrap_or("")
    }

    /// A field that holds a number.
    pub fn number(&self, name: &str) -> Option<u32> {
        self.get(name).parse().ok()
    }

    /// Whether a thread of the process still executes.
    pub fn is_of_the_living(&self) -> bool {
        let state = self.get("State").chars().next();
        !state.is_some_and(is_over) || self.number("Threads").is_some_and(|threads| threads > 1)
    }

    /// A field that holds an amount of memory, in KiB.
    pub fn kibibytes(&self, name: &str) -> Option<u64> {
        self.get(name).split_ascii_whitespace().next()?.parse().ok()
    }

    /// A field that holds a set of bits, in hexadecimal.
    pub fn bits(&self, name: &str) -> Option<u64> {
        u64::from_str_radix(self.get(name), 16).ok()
    }
}

impl From<String> for Fields {
    /// The fields in the text of such a file.
    fn from(text: String) -> Self {
        Self(text)
    }
}

fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
        .map(str::trim)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_by_their_whole_names() {
        let fields = Fields(
            "Name:\tSeccomp: x\nVmLck:\t     12 kB\nSeccomp_filters:\t3\nSeccomp:\t2\n\
             SigBlk:\t0000000000000400\n"
                .into(),
        );
        assert_eq!(fields.number("Seccomp"), Some(2));
        assert_eq!(fields.number("Seccomp_filters"), Some(3));
        assert_eq!(fields.kibibytes("VmLck"), Some(12));
        assert_eq!(fields.bits("SigBlk"), Some(1 << 10));
        assert_eq!(
            (fields.get("TracerPid"), fields.number("Threads")),
            ("", None)
        );
    }
}
