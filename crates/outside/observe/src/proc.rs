//! The one home of `/proc/PID` parsing. Only reads. The process runs on, so everything returned may
//! be out of date at once.

use crate::ObserveError;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use sunder_access::{Address, Mapping, Mappings, ProcessId, Span, ThreadId};

/// Fields of `/proc/PID/status` and `stat`.
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

fn path(process: ProcessId, file: &str) -> PathBuf {
    PathBuf::from(format!("/proc/{process}/{file}"))
}

/// The number below `/proc` that has the memory, files and folders of `process`: its own, or that
/// of a living thread. After the first thread has ended (`pthread_exit` in `main`), those below its
/// own number are empty.
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

/// Reads a file of `process`. The error is `NoSuchProcess` if the process has ended.
fn read(process: ProcessId, file: &str) -> Result<Vec<u8>, ObserveError> {
    let path = path(process, file);
    fs::read(&path).map_err(|source| explain(process, path, source))
}

fn explain(process: ProcessId, path: PathBuf, source: io::Error) -> ObserveError {
    let gone =
        source.kind() == io::ErrorKind::NotFound || source.raw_os_error() == Some(libc::ESRCH);
    if gone {
        ObserveError::NoSuchProcess(process)
    } else {
        ObserveError::Proc { path, source }
    }
}

/// Checks that `/proc` is mounted and has our numbers of processes. Call it before reading or
/// changing a process by a number from `/proc`.
///
/// # Errors
/// [`ObserveError`] if it is not mounted, or is another namespace's.
pub fn is_ours() -> Result<(), ObserveError> {
    let own = std::process::id().to_string();
    match fs::read_link("/proc/self") {
        Ok(told) if told.as_os_str() == own.as_str() => Ok(()),
        Ok(_) => Err(ObserveError::ForeignProc),
        Err(_) => Err(ObserveError::NoProc),
    }
}

/// The mappings of a process.
///
/// # Errors
/// If the process has ended or we may not read them.
pub fn mappings(process: ProcessId) -> Result<Mappings, ObserveError> {
    let mut text = read(process, "maps")?;
    if text.is_empty() {
        text = read(living_number(process), "maps")?;
    }
    Ok(parse_mappings(&text))
}

/// Parses the text of `/proc/PID/maps`; leaves out lines that are not as documented.
pub fn parse_mappings(text: &[u8]) -> Mappings {
    text.split(|&byte| byte == b'\n')
        .filter_map(|line| parse_mapping(&String::from_utf8_lossy(line)))
        .collect()
}

fn parse_mapping(line: &str) -> Option<Mapping> {
    // start-end rights offset device inode [spaces path]
    let mut fields = line.splitn(6, ' ');
    let (start, end) = fields.next()?.split_once('-')?;
    let start = u64::from_str_radix(start, 16).ok()?;
    let end = u64::from_str_radix(end, 16).ok()?;
    let rights = fields.next()?.as_bytes();
    let file_offset = u64::from_str_radix(fields.next()?, 16).ok()?;
    let _device = fields.next()?;
    let inode = fields.next()?.parse().ok()?;
    let path = fields.next().unwrap_or("").trim_start_matches(' ');
    Some(Mapping {
        span: Span::new(Address(start), end.checked_sub(start)?),
        file_offset,
        path: unescape(path),
        inode,
        read: rights.first() == Some(&b'r'),
        write: rights.get(1) == Some(&b'w'),
        execute: rights.get(2) == Some(&b'x'),
        shared: rights.get(3) == Some(&b's'),
    })
}

/// The kernel writes a newline in a path as `\012`, and nothing else so
/// (`show_map_vma`: `seq_path` with "\n").
fn unescape(path: &str) -> String {
    path.replace("\\012", "\n")
}

/// The threads of a process, by number.
///
/// # Errors
/// If the process has ended or we may not read them.
pub fn threads(process: ProcessId) -> Result<Vec<ThreadId>, ObserveError> {
    let path = path(process, "task");
    let entries = fs::read_dir(&path).map_err(|source| explain(process, path, source))?;
    // An entry that cannot be read belongs to a thread that has just ended.
    let mut threads: Vec<ThreadId> = entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok().map(ThreadId))
        .collect();
    threads.sort_unstable();
    if threads.is_empty() {
        return Err(ObserveError::NoSuchProcess(process));
    }
    Ok(threads)
}

/// The name of a thread, at most 15 bytes.
///
/// # Errors
/// If the thread has ended.
pub fn thread_name(process: ProcessId, thread: ThreadId) -> Result<String, ObserveError> {
    let mut name = read(process, &format!("task/{thread}/comm"))?;
    if name.last() == Some(&b'\n') {
        name.pop();
    }
    Ok(String::from_utf8_lossy(&name).into_owned())
}

/// State, parent and users.
///
/// # Errors
/// If the process has ended.
pub fn status(process: ProcessId) -> Result<Status, ObserveError> {
    let text = read(process, "status")?;
    parse_status(&String::from_utf8_lossy(&text)).ok_or_else(|| ObserveError::Proc {
        path: path(process, "status"),
        source: io::ErrorKind::InvalidData.into(),
    })
}

fn parse_status(text: &str) -> Option<Status> {
    let field = |name: &str| {
        text.lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
            .map(str::trim)
    };
    let mut users = field("Uid")?.split_whitespace();
    Some(Status {
        state: field("State")?.chars().next()?,
        parent: ProcessId(field("PPid")?.parse().ok()?),
        user: users.next()?.parse().ok()?,
        effective_user: users.next()?.parse().ok()?,
        threads: field("Threads")?.parse().ok()?,
    })
}

/// The path of the program that a process executes; the kernel appends ` (deleted)` if the file is
/// deleted.
///
/// # Errors
/// If the process has ended or we may not read it.
pub fn executable(process: ProcessId) -> Result<PathBuf, ObserveError> {
    let path = path(living_number(process), "exe");
    fs::read_link(&path).map_err(|source| explain(process, path, source))
}

/// The arguments of a process, the program's name first; empty for a zombie.
///
/// # Errors
/// If the process has ended.
pub fn command_line(process: ProcessId) -> Result<Vec<OsString>, ObserveError> {
    let mut text = read(process, "cmdline")?;
    if text.last() == Some(&0) {
        text.pop();
    } else if text.is_empty() {
        return Ok(Vec::new());
    }
    Ok(text
        .split(|&byte| byte == 0)
        .map(|argument| OsString::from_vec(argument.to_vec()))
        .collect())
}

/// Whether a process executes code: a zombie does not, unless only its first thread has ended.
pub fn is_alive(process: ProcessId) -> bool {
    status(process).is_ok_and(|status| !is_over(status.state) || status.threads > 1)
}

/// Whether a process has waited for a child that had run. Also known of a zombie.
pub fn has_waited_for_children(process: ProcessId) -> bool {
    // Field 11: minor page faults of reaped children; every child has some.
    stat(process, "stat", 11, 1).is_some_and(|faults| faults > 0)
}

/// The CPU time of a thread, in clock ticks.
fn cpu_ticks(process: ProcessId, thread: ThreadId) -> Option<u64> {
    // Fields 14 and 15: utime, stime.
    stat(process, &format!("task/{thread}/stat"), 14, 2)
}

/// The sum of `count` fields of a `stat` file, beginning with `first`, numbered from 1 as in
/// proc(5).
fn stat(process: ProcessId, file: &str, first: usize, count: usize) -> Option<u64> {
    let text = read(process, file).ok()?;
    // The second field is the name in parentheses, which may contain any byte.
    let after_name = text.iter().rposition(|&byte| byte == b')')? + 2;
    let text = String::from_utf8_lossy(text.get(after_name..)?).into_owned();
    let mut sum = 0;
    let mut fields = text.split(' ').skip(first - 3);
    for _ in 0..count {
        sum += fields.next()?.parse::<u64>().ok()?;
    }
    Some(sum)
}

/// Sorts `threads` by the CPU time that they have used, most first.
pub(crate) fn busiest_first(process: ProcessId, threads: &mut [ThreadId]) {
    threads
        .sort_by_cached_key(|&thread| std::cmp::Reverse(cpu_ticks(process, thread).unwrap_or(0)));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own() -> ProcessId {
        ProcessId(std::process::id())
    }

    #[test]
    fn a_child_that_was_waited_for_is_known() {
        let waited = |script: &str| {
            let mut shell = std::process::Command::new("sh")
                .args(["-c", script])
                .stdin(std::process::Stdio::piped())
                .stdout(std::process::Stdio::piped())
                .spawn()
                .expect("there is a shell");
            let mut line = [0u8; 1];
            let out = shell.stdout.as_mut().expect("piped");
            std::io::Read::read_exact(out, &mut line).expect("the shell says x");
            let answer = has_waited_for_children(ProcessId(shell.id()));
            drop(shell.stdin.take());
            shell.wait().expect("the shell ends");
            answer
        };
        assert!(waited("/bin/true; echo x; read y"));
        assert!(!waited("echo x; read y"));
    }

    #[test]
    fn the_maps_of_the_manual_are_understood() {
        let text = b"00400000-00452000 r-xp 00001000 08:02 173521      /usr/bin/dbus daemon\n\
            00e03000-00e24000 rw-p 00000000 00:00 0           [heap]\n\
            35b1dac000-35b1dad000 rw-s 001ac000 08:02 99 /tmp/a\\012b (deleted)\n\
            7f0000000000-7f0000001000 ---p 00000000 00:00 0 \n\
            garbage\n";
        let all = parse_mappings(text);
        let seen: Vec<_> = all.iter().collect();
        assert_eq!(seen.len(), 4);
        assert_eq!(seen[0].span, Span::new(Address(0x40_0000), 0x5_2000));
        assert_eq!((seen[0].file_offset, seen[0].inode), (0x1000, 173_521));
        assert_eq!(seen[0].path, "/usr/bin/dbus daemon");
        assert!(seen[0].read && !seen[0].write && seen[0].execute && !seen[0].shared);
        assert_eq!(seen[1].path, "[heap]");
        assert!(!seen[1].is_file());
        assert_eq!(seen[2].path, "/tmp/a\nb (deleted)");
        assert!(seen[2].shared && seen[2].write);
        assert_eq!(seen[3].path, "");
        assert!(!seen[3].read);
    }

    #[test]
    fn own_process_is_described() {
        let code = own_process_address();
        let all = mappings(own()).unwrap();
        let mapping = all.at(Address(code)).unwrap();
        assert!(mapping.execute && mapping.is_file());
        assert_eq!(PathBuf::from(&mapping.path), executable(own()).unwrap());

        let status = status(own()).unwrap();
        // SAFETY: no preconditions.
        assert_eq!(status.user, unsafe { libc::getuid() });
        assert_eq!(status.parent.0, std::os::unix::process::parent_id());
        assert!(is_alive(own()));
        assert_eq!(
            command_line(own()).unwrap(),
            std::env::args_os().collect::<Vec<_>>()
        );
        assert!(threads(own()).unwrap().contains(&ThreadId(own().0)));
    }

    fn own_process_address() -> u64 {
        own_process_is_described as *const () as u64
    }

    #[test]
    fn a_thread_has_its_name() {
        let named = std::thread::Builder::new()
            .name("fifteen bytes!!".into())
            .spawn(|| {
                // SAFETY: no preconditions.
                let thread = ThreadId(unsafe { libc::gettid() } as u32);
                thread_name(own(), thread).unwrap()
            });
        assert_eq!(named.unwrap().join().unwrap(), "fifteen bytes!!");
    }

    #[test]
    fn a_process_that_is_not_there_is_named_as_such() {
        // Above the largest possible number of a process, 2^22.
        let nobody = ProcessId(1 << 23);
        assert!(matches!(
            mappings(nobody),
            Err(ObserveError::NoSuchProcess(p)) if p == nobody
        ));
        assert!(matches!(
            threads(nobody),
            Err(ObserveError::NoSuchProcess(_))
        ));
        assert!(!is_alive(nobody));
    }
}
