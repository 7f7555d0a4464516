//! The output of the program while the view is on the terminal: it goes to a file, and is shown when the
//! view has left. Its input is empty: the keys are for the view.

use anyhow::{Context, Result};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

/// The most bytes that are shown at the end. Of more, the last ones.
const SHOWN: u64 = 1 << 20;

/// The standard streams of this process, which a program that it starts inherits, while they are
/// exchanged.
pub struct Kept {
    output: File,
    own: [OwnedFd; 3],
}

impl Kept {
    /// From now on, what is written to the standard streams is kept.
    ///
    /// # Errors
    /// If no file can be made.
    pub fn begin() -> Result<Self> {
        let output = tempfile::tempfile().context("cannot keep the program's output")?;
        let nothing = File::open("/dev/null").context("cannot open /dev/null")?;
        let keep = |fd: &dyn AsFd| fd.as_fd().try_clone_to_owned();
        let own = [
            keep(&io::stdin()).context("cannot keep standard input")?,
            keep(&io::stdout()).context("cannot keep standard output")?,
            keep(&io::stderr()).context("cannot keep standard error")?,
        ];
        let kept = Self { output, own };
        exchange(libc::STDIN_FILENO, &nothing);
        exchange(libc::STDOUT_FILENO, &kept.output);
        exchange(libc::STDERR_FILENO, &kept.output);
        Ok(kept)
    }
}

impl Drop for Kept {
    /// The streams are the user's again, and what was kept is written to standard output.
    fn drop(&mut self) {
        for (number, own) in (0..).zip(&self.own) {
            exchange(number, own);
        }
        let _ = show(&mut self.output, &mut io::stdout());
    }
}

fn exchange(number: i32, by: &impl AsRawFd) {
    // SAFETY: both are open; the call takes numbers.
    unsafe { libc::dup2(by.as_raw_fd(), number) };
}

fn show(kept: &mut File, to: &mut dyn Write) -> io::Result<()> {
    let length = kept.metadata()?.len();
    let from = length.saturating_sub(SHOWN);
    if from > 0 {
        writeln!(to, "({from} bytes of output before this are not shown)")?;
    }
    kept.seek(SeekFrom::Start(from))?;
    io::copy(&mut kept.take(SHOWN), to)?;
    to.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_very_much_output_the_end_is_shown() {
        let mut file = tempfile::tempfile().expect("a file");
        let mut shown = Vec::new();
        file.write_all(b"all of it\n").expect("written");
        show(&mut file, &mut shown).expect("readable");
        assert_eq!(shown, b"all of it\n");
        file.write_all(&vec![b'x'; SHOWN as usize])
            .expect("written");
        shown.clear();
        show(&mut file, &mut shown).expect("readable");
        let text = String::from_utf8(shown).expect("text");
        assert!(text.starts_with("(10 bytes of output before this are not shown)\nxxx"));
    }
}
