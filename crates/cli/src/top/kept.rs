//! The standard streams of the program while the view is on the terminal. What would go to the terminal
//! goes to a file, and is shown when the view has left. What would be read from it is empty: the keys are
//! for the view. Streams that are a file or a pipe are the program's, and must not be touched.

use anyhow::{Context, Result};
use std::fs::File;
use std::io::{self, IsTerminal, Seek, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};

/// The standard streams of this process, which a program that it starts inherits, while those of the
/// terminal are exchanged.
pub struct Kept {
    output: File,
    /// The terminal's streams, by number.
    own: Vec<(RawFd, OwnedFd)>,
}

impl Kept {
    /// From now on, what is written to the terminal is kept.
    ///
    /// # Errors
    /// If no file can be made.
    pub fn begin() -> Result<Self> {
        let output = tempfile::tempfile().context("cannot keep the program's output")?;
        let nothing = File::open("/dev/null").context("cannot open /dev/null")?;
        let mut kept = Self {
            output,
            own: Vec::new(),
        };
        let (input, out, error) = (io::stdin(), io::stdout(), io::stderr());
        if input.is_terminal() {
            kept.exchange(&input, &nothing)?;
        }
        // Both into one file, so that their order is kept.
        let output = kept.output.try_clone();
        let output = output.context("cannot keep the program's output")?;
        if out.is_terminal() {
            kept.exchange(&out, &output)?;
        }
        if error.is_terminal() {
            kept.exchange(&error, &output)?;
        }
        Ok(kept)
    }

    fn exchange(&mut self, stream: &(impl AsFd + AsRawFd), by: &File) -> Result<()> {
        let own = stream.as_fd().try_clone_to_owned();
        let own = own.context("cannot keep a standard stream")?;
        self.own.push((stream.as_raw_fd(), own));
        exchange(stream.as_raw_fd(), by);
        Ok(())
    }
}

impl Drop for Kept {
    /// The streams are the user's again, and what was kept is written to the terminal.
    fn drop(&mut self) {
        for (number, own) in &self.own {
            exchange(*number, own);
        }
        let to = self.own.iter().find(|one| one.0 != libc::STDIN_FILENO);
        if let Some(mut to) = to.and_then(|(_, own)| own.try_clone().ok().map(File::from)) {
            let _ = show(&mut self.output, &mut to);
        }
    }
}

fn exchange(number: RawFd, by: &impl AsRawFd) {
    // SAFETY: both are open; the call takes numbers.
    unsafe { libc::dup2(by.as_raw_fd(), number) };
}

fn show(kept: &mut File, to: &mut dyn Write) -> io::Result<()> {
    kept.rewind()?;
    io::copy(kept, to)?;
    to.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_kept_is_shown_whole() {
        let mut file = tempfile::tempfile().expect("a file");
        let much: Vec<u8> = (0..3 << 20).map(|n: u32| b'a' + (n % 23) as u8).collect();
        file.write_all(&much).expect("written");
        let mut shown = Vec::new();
        show(&mut file, &mut shown).expect("readable");
        assert!(shown == much, "{} of {} bytes", shown.len(), much.len());
    }
}
