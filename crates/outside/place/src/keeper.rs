//! Keeps the memory files of `sunder run` for processes that the program leaves behind (a daemon, a
//! job in the background). Programs that these execute look for the heap by its path in
//! `LD_PRELOAD`, and the dynamic loader complains aloud of a library that is not there.
//!
//! `run.rs` starts a keeper before the program, whose paths then lead to the keeper. It must hold
//! none of the user's streams, and must not outlive the last process that may need the files.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

/// Between two looks at who is left: short ones first, since most that are left end soon.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// So often nobody must be seen: whoever is just being executed shows no environment.
const LOOKS: u32 = 4;

/// A process that has all descriptors of ours that are kept, and does nothing but wait.
pub struct Keeper {
    process: i32,
    /// Closed by our end, whatever ends us. Who is left then is the keeper's to find out.
    _alive: OwnedFd,
}

impl Keeper {
    /// Starts one that holds `kept` under the same numbers. Only for a process with one thread.
    ///
    /// # Errors
    /// If there are no more processes or descriptors.
    pub fn start(kept: &[RawFd]) -> io::Result<Self> {
        let mut ends = [0; 2];
        // SAFETY: `ends` has room for two descriptors.
        if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) } != 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just given us both; nobody else knows them.
        let (over, alive) =
            unsafe { (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])) };
        // SAFETY: this process has one thread, so the child may do whatever we may.
        match unsafe { libc::fork() } {
            -1 => Err(io::Error::last_os_error()),
            // That closes `alive` there.
            0 => keep(kept, over),
            process => Ok(Self {
                process,
                _alive: alive,
            }),
        }
    }

    /// Its process number.
    pub const fn process(&self) -> u32 {
        self.process.unsigned_abs()
    }
}

/// The keeper's life.
fn keep(kept: &[RawFd], over: OwnedFd) -> ! {
    // SAFETY: calls without pointers, or with a path that ends with zero. What the descriptors
    // belonged to is never used again: this process ends here.
    unsafe {
        // What a terminal sends is not meant for it.
        libc::setsid();
        libc::chdir(c"/".as_ptr());
        for descriptor in descriptors() {
            if descriptor != over.as_raw_fd() && !kept.contains(&descriptor) {
                libc::close(descriptor);
            }
        }
    }
    // Ends with an error or nothing, as soon as nobody has the other end.
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
    // SAFETY: nothing has to be done before the end.
    unsafe { libc::_exit(0) }
}

fn descriptors() -> Vec<RawFd> {
    let Ok(entries) = std::fs::read_dir("/proc/self/fd") else {
        return Vec::new();
    };
    let number = |name: &OsStr| name.to_str()?.parse().ok();
    entries
        .flatten()
        .filter_map(|entry| number(&entry.file_name()))
        .collect()
}

/// Whether a process was executed with paths that lead to the keeper.
fn is_anyone_left(keeper: i32) -> bool {
    let path = format!("/proc/{keeper}/fd/");
    let Ok(entries) = std::fs::read_dir("/proc") else {
        return false;
    };
    entries.flatten().any(|entry| {
        let name = entry.file_name();
        name.as_bytes().iter().all(u8::is_ascii_digit)
            && std::fs::read(entry.path().join("environ"))
                .is_ok_and(|bytes| bytes.windows(path.len()).any(|w| w == path.as_bytes()))
    })
}
