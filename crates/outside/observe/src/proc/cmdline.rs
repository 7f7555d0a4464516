//! `cmdline`: the arguments of a process.

use super::folder::{explain, path};
use crate::ObserveError;
use crate::pending::PendingRead;
use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStringExt;
use sunder_access::ProcessId;

/// The most bytes of arguments that are read. A process may say that all of its memory is arguments
/// (`PR_SET_MM_MAP`).
const MOST_BYTES: u64 = 2 << 20;
/// The most arguments; each takes memory of its own, also an empty one.
const MOST_ARGUMENTS: usize = 1 << 16;

/// Its arguments, the program's name first; empty for a zombie. Of absurdly many, the first.
///
/// # Errors
/// If the process is gone.
pub fn command_line(process: ProcessId) -> Result<Vec<OsString>, ObserveError> {
    let path = path(process, "cmdline");
    let mut text = Vec::new();
    let _reading = PendingRead::begin(process);
    let read = File::open(&path).and_then(|file| file.take(MOST_BYTES).read_to_end(&mut text));
    read.map_err(|source| explain(process, path, source))?;
    Ok(arguments(&text))
}

/// The arguments in the text of such a file.
fn arguments(text: &[u8]) -> Vec<OsString> {
    if text.is_empty() {
        return Vec::new();
    }
    text.strip_suffix(b"\0")
        .unwrap_or(text)
        .split(|&byte| byte == 0)
        .take(MOST_ARGUMENTS)
        .map(|argument| OsString::from_vec(argument.to_vec()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader};
    use std::process::{Command, Stdio};

    #[test]
    fn arguments_end_with_zeros_and_are_bounded() {
        assert_eq!(arguments(b""), [""; 0]);
        assert_eq!(arguments(b"\0"), [""]);
        assert_eq!(arguments(b"a\0\0b c\0"), ["a", "", "b c"]);
        assert_eq!(arguments(b"cut o"), ["cut o"]);
        let many = vec![0; MOST_ARGUMENTS * 2];
        assert_eq!(arguments(&many).len(), MOST_ARGUMENTS);
    }

    /// Says that 64 MiB of its memory are its arguments, and waits for its input's end.
    const CLAIMS_MUCH: &str = "
import ctypes, mmap, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
size = 64 << 20
libc.mmap.restype = ctypes.c_ulong
at = libc.mmap(None, ctypes.c_size_t(size), 3, 0x4022, -1, ctypes.c_long(0))
ctypes.memset(at, 97, 4 << 20)
f = [int(x) for x in open('/proc/self/stat').read().rpartition(')')[2].split()[1:]]
field = lambda n: f[n - 4]
libc.sbrk.restype = ctypes.c_ulong
words = [field(26), field(27), field(45), field(46), field(47), libc.sbrk(0), field(28),
         at, at + size, at, at + size, 0]
told = struct.pack('12QIi', *words, 0, -1)
if libc.prctl(35, 14, told, len(told), 0) != 0:
    print('refused', ctypes.get_errno(), flush=True)
else:
    print('ready', flush=True)
sys.stdin.read()
";

    #[test]
    fn a_process_that_says_that_all_of_it_is_arguments_is_read_in_part() {
        let python = Command::new("python3")
            .args(["-c", CLAIMS_MUCH])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn();
        let Ok(mut python) = python else {
            println!("SKIP: there is no python3");
            return;
        };
        let mut line = String::new();
        let output = python.stdout.take().expect("piped");
        BufReader::new(output).read_line(&mut line).expect("text");
        let seen = command_line(ProcessId(python.id()));
        drop(python.stdin.take());
        python.wait().expect("our child");
        if line != "ready\n" {
            println!("SKIP: the kernel does not let a process move its arguments: {line}");
            return;
        }
        let bytes: usize = seen.expect("it lives").iter().map(|a| a.len() + 1).sum();
        assert!(bytes as u64 <= MOST_BYTES + 1, "{bytes}");
    }
}
