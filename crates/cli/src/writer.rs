//! A process that keeps the right to write the reports. `sunder` starts it before the program, and
//! gives that right up itself before it reads anything that the program brings. It writes the texts
//! that it is sent to the destinations that were chosen by then, in place of whatever they hold. It
//! must not look into a text, and must not write anywhere else.
//!
//! One process writes all reports of a run; it ends with the run.

use std::ffi::CStr;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use sunder_observe::launch::Blocked;

/// Writes a text to a destination.
pub type Put<'a> = &'a dyn Fn(&[u8]) -> io::Result<()>;

/// Such a process. It ends when this value is dropped, or this process ends in any way.
#[derive(Debug)]
pub struct Writer {
    /// Both ends; `None` only while it is dropped.
    ends: Option<(File, File)>,
    process: i32,
}

/// What is sent before a text: the number of its destination, and its length.
const HEAD: usize = 16;

/// The name that lists of processes show.
const NAME: &CStr = c"sunder-writer";

impl Writer {
    /// Starts the process. Call it only while this one has one thread.
    ///
    /// # Errors
    /// If the process or a pipe can't be made.
    pub fn start(destinations: &[Put]) -> io::Result<Self> {
        let (its_input, to) = io::pipe()?;
        let (from, its_output) = io::pipe()?;
        // None may end the child before it has left the terminal. It keeps them blocked.
        let blocked = Blocked::all();
        // SAFETY: this process has one thread, so the child may do whatever we may.
        let process = unsafe { libc::fork() };
        if process != 0 {
            drop(blocked);
        }
        match process {
            -1 => Err(io::Error::last_os_error()),
            0 => {
                drop((to, from));
                leave_the_terminal();
                let ends = (OwnedFd::from(its_input), OwnedFd::from(its_output));
                serve(destinations, ends.0.into(), ends.1.into());
                // SAFETY: no exit handler has to run in this process.
                unsafe { libc::_exit(0) }
            }
            process => Ok(Self {
                ends: Some((OwnedFd::from(to).into(), OwnedFd::from(from).into())),
                process,
            }),
        }
    }

    /// Writes `text` to the destination of this number.
    ///
    /// # Errors
    /// If it can't be written, or the process has ended.
    pub fn write(&self, number: usize, text: &str) -> io::Result<()> {
        let Some((to, from)) = &self.ends else {
            return Err(io::ErrorKind::BrokenPipe.into());
        };
        let (mut to, mut from) = (to, from);
        let mut head = [0; HEAD];
        head[..8].copy_from_slice(&(number as u64).to_le_bytes());
        head[8..].copy_from_slice(&(text.len() as u64).to_le_bytes());
        to.write_all(&head)?;
        to.write_all(text.as_bytes())?;
        let mut answer = [0; 4];
        from.read_exact(&mut answer)?;
        match i32::from_le_bytes(answer) {
            0 => Ok(()),
            error => Err(io::Error::from_raw_os_error(error)),
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.ends = None;
        // SAFETY: a child of ours that nothing else waits for; no status is wanted.
        unsafe { libc::waitpid(self.process, std::ptr::null_mut(), 0) };
    }
}

/// The user's streams end when `sunder` does, and signals of the terminal are not for this process. Those
/// that are sent to all processes of a service are blocked: the end of `sunder` ends this process.
fn leave_the_terminal() {
    // SAFETY: these calls take numbers, and a name that ends with zero.
    unsafe {
        libc::prctl(libc::PR_SET_NAME, NAME.as_ptr());
        libc::setsid();
    }
    if let Ok(null) = File::options().read(true).write(true).open("/dev/null") {
        for stream in 0..=2 {
            // SAFETY: both are open, or the call fails.
            unsafe { libc::dup2(null.as_raw_fd(), stream) };
        }
    }
}

/// Writes what comes until no more can come.
fn serve(destinations: &[Put], mut input: File, mut output: File) {
    let mut head = [0; HEAD];
    while input.read_exact(&mut head).is_ok() {
        let word = |at: usize| head[at..at + 8].try_into().map_or(0, u64::from_le_bytes);
        let (number, length) = (word(0), word(8));
        let mut text = Vec::new();
        let whole = (&input).take(length).read_to_end(&mut text);
        if whole.is_ok_and(|read| read as u64 != length) {
            return;
        }
        let destination = usize::try_from(number)
            .ok()
            .and_then(|n| destinations.get(n));
        let written = match destination {
            Some(put) => put(&text),
            None => Err(io::Error::from_raw_os_error(libc::EINVAL)),
        };
        let error = written
            .err()
            .map_or(0, |e| e.raw_os_error().unwrap_or(libc::EIO));
        if output.write_all(&error.to_le_bytes()).is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_come_whole_and_one_after_the_other() {
        let folder = tempfile::tempdir().expect("a folder");
        let paths = ["a", "b"].map(|name| folder.path().join(name));
        let [first, second] = &paths;
        let puts: [Put; 2] = [&|text| std::fs::write(first, text), &|text| {
            std::fs::write(second, text)
        }];
        // Longer than what a pipe holds.
        let long = "text\n".repeat(100_000);
        let (its_input, to) = io::pipe().expect("a pipe");
        let (mut from, its_output) = io::pipe().expect("a pipe");
        let mut answers = Vec::new();
        std::thread::scope(|scope| {
            let long = &long;
            scope.spawn(move || {
                let mut to = to;
                let mut send = |number: u64, length: u64, text: &str| {
                    let head = [number.to_le_bytes(), length.to_le_bytes()].concat();
                    to.write_all(&head).expect("it reads");
                    to.write_all(text.as_bytes()).expect("it reads");
                };
                send(1, long.len() as u64, long);
                send(7, 1, "x");
                send(0, 3, "abc");
                // One that is cut off is not written.
                send(0, 10, "cut");
            });
            let (input, output) = (OwnedFd::from(its_input), OwnedFd::from(its_output));
            serve(&puts, input.into(), output.into());
            from.read_to_end(&mut answers).expect("readable");
        });
        let answers: Vec<_> = answers.chunks(4).map(|a| a[0]).collect();
        assert_eq!(answers, [0, libc::EINVAL as u8, 0]);
        let read = |path| std::fs::read_to_string(path).expect("readable");
        assert_eq!(read(&paths[0]), "abc");
        assert_eq!(read(&paths[1]), long);
    }
}
