//! Keeps the memory files of `sunder run` open for processes that outlive the program (a
//! daemon, a job in the background). When such a process executes a program, the dynamic loader
//! looks for the heap at its path in `LD_PRELOAD`, and prints a complaint if the library is not
//! there.
//!
//! The crate's `run` starts a keeper before the program, and the paths that the program gets
//! lead to the keeper's descriptors. The keeper must hold none of the user's streams, and must
//! end when no process is left that may need the files.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

/// Pauses between two searches for such processes: short at first, since most of them end soon.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// The keeper ends after this many searches in a row that found no process. One search is not
/// enough: a process in the middle of an `execve` shows no environment.
const LOOKS: u32 = 4;

/// A child process that holds the descriptors of the memory files and only waits.
pub struct Keeper {
    process: i32,
    /// The pipe's end of this process. The kernel closes it when this process ends, however it
    /// ends; from then on the keeper searches for processes that are left.
    _alive: OwnedFd,
}

impl Keeper {
    /// Starts a keeper that holds `kept` under the same descriptor numbers. Call it only while
    /// the process has one thread.
    ///
    /// # Errors
    /// If the process or the pipe can't be made.
    pub fn start(kept: &[RawFd]) -> io::Result<Self> {
        let mut ends = [0; 2];
        // SAFETY: `ends` has room for two descriptors.
        if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) } != 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just returned both descriptors, and nothing else owns them.
        let (over, alive) =
            unsafe { (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])) };
        // SAFETY: this process has one thread, so the child may do whatever we may.
        match unsafe { libc::fork() } {
            -1 => Err(io::Error::last_os_error()),
            0 => {
                // With its own copy, the keeper would wait for itself.
                drop(alive);
                keep(kept, over)
            }
            process => Ok(Self {
                process,
                _alive: alive,
            }),
        }
    }

    /// The keeper's process number.
    pub const fn process(&self) -> u32 {
        self.process.unsigned_abs()
    }
}

/// What the keeper does until it ends.
fn keep(kept: &[RawFd], over: OwnedFd) -> ! {
    // SAFETY: the calls take no pointer, or a path that ends with zero. The owners of the
    // closed descriptors are never used again, as this process ends here.
    unsafe {
        // Signals of the terminal are not meant for the keeper.
        libc::setsid();
        libc::chdir(c"/".as_ptr());
        for descriptor in descriptors() {
            if descriptor != over.as_raw_fd() && !kept.contains(&descriptor) {
                libc::close(descriptor);
            }
        }
    }
    // The read returns when no process has the other end of the pipe open any more.
    let _ = File::from(over).read_to_end(&mut Vec::new());
    let own = std::process::id().cast_signed();
    let (mut pause, mut nobody) = (FIRST_PAUSE, 0);
    while nobody < LOOKS {
        nobody = if is_anyone_left(own) { 0 } else { nobody + 1 };
        if nobody > 0 {
            std::thread::sleep(FIRST_PAUSE);
        } else {
            std::thread::sleep(pause);
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }
    // SAFETY: no exit handler has to run in this process.
    unsafe { libc::_exit(0) }
}

/// The open descriptors; those that may be open, where the kernel does not list them.
fn descriptors() -> Vec<RawFd> {
    const USUAL_LIMIT: RawFd = 1024;
    let Ok(entries) = std::fs::read_dir("/proc/self/fd") else {
        return (0..USUAL_LIMIT).collect();
    };
    let number = |name: &OsStr| name.to_str()?.parse().ok();
    entries
        .flatten()
        .filter_map(|entry| number(&entry.file_name()))
        .collect()
}

/// Whether the environment of a process names paths that lead to the keeper.
fn is_anyone_left(keeper: i32) -> bool {
    let path = format!("/{keeper}/fd/");
    let Ok(entries) = std::fs::read_dir("/proc") else {
        return false;
    };
    entries.flatten().any(|entry| {
        let name = entry.file_name();
        name.as_bytes().iter().all(u8::is_ascii_digit)
            && File::open(entry.path().join("environ"))
                .is_ok_and(|environment| has(environment, path.as_bytes()))
    })
}

/// The most bytes of an environment that are searched: more than the kernel accepts with the usual
/// limit of the stack. A process may say that all of its memory is its environment.
const MOST_BYTES: u64 = 8 << 20;

/// Whether `text` is in what is read, which is not kept.
fn has(read: impl Read, text: &[u8]) -> bool {
    let mut read = read.take(MOST_BYTES);
    let mut bytes = vec![0; 1 << 16];
    // The end of what was read before, in which the text may have begun.
    let mut kept = 0;
    loop {
        let new = match read.read(&mut bytes[kept..]) {
            Ok(0) | Err(_) => return false,
            Ok(new) => new,
        };
        let len = kept + new;
        if bytes[..len].windows(text.len()).any(|w| w == text) {
            return true;
        }
        kept = len.min(text.len() - 1);
        bytes.copy_within(len - kept..len, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives few bytes at once, and counts them.
    struct Slow<R>(R, u64);

    impl<R: Read> Read for Slow<R> {
        fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
            let few = bytes.len().min(5);
            let read = self.0.read(&mut bytes[..few])?;
            self.1 += read as u64;
            Ok(read)
        }
    }

    #[test]
    fn a_text_is_found_wherever_the_pieces_end() {
        for before in 0..20 {
            let text = [&vec![b'x'; before][..], b"/12/fd/3\0rest"].concat();
            assert!(has(Slow(&text[..], 0), b"/12/fd/"), "{before}");
            assert!(!has(Slow(&text[..], 0), b"/123/fd/"), "{before}");
        }
    }

    #[test]
    fn an_environment_without_an_end_is_searched_in_part() {
        let mut endless = Slow(io::repeat(b'x'), 0);
        assert!(!has(&mut endless, b"/12/fd/"));
        assert_eq!(endless.1, MOST_BYTES);
    }
}
