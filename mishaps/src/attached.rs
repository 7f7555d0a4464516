//! A program to which the tool attaches: started before it, ended after it, and looked through for
//! what the tool has left in it. Must not know the tool.

use crate::group;
use crate::subject::Input;
use crate::watch::HANGS;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// A program to which the tool attaches, with our end of its input.
pub struct Attached {
    child: Child,
    input: Option<std::process::ChildStdin>,
    rest: Vec<u8>,
    feeder: Option<std::thread::JoinHandle<()>>,
}

impl Attached {
    /// Starts it with this input. `stdout` is the file to which it writes.
    ///
    /// # Errors
    /// If it can't be started.
    pub fn start(mut command: Command, input: &Input, stdout: &Path) -> io::Result<Self> {
        command.stdin(Stdio::piped()).process_group(0);
        let mut child = command.spawn()?;
        let pipe = child.stdin.take();
        let mut feeder = None;
        let rest = match input {
            Input::Nothing => Vec::new(),
            Input::LastByte => {
                let begun = Instant::now();
                while fs::read(stdout)?.is_empty() && begun.elapsed() < HANGS {
                    std::thread::sleep(Duration::from_millis(1));
                }
                b"x".to_vec()
            }
            Input::Halves(file) => {
                let mut text = fs::read(file)?;
                let rest = text.split_off(text.len() / 2);
                if let Some(mut pipe) = pipe.as_ref().map(clone_of).transpose()? {
                    // As slowly as the tool lives, so that the program always has something to do.
                    feeder = Some(std::thread::spawn(move || {
                        for piece in text.chunks(text.len() / 64 + 1) {
                            let _ = pipe.write_all(piece);
                            std::thread::sleep(Duration::from_millis(8));
                        }
                    }));
                }
                rest
            }
        };
        Ok(Self {
            child,
            input: pipe,
            rest,
            feeder,
        })
    }

    /// Its number.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Gives it the rest of its input and waits for its end: its status, or `None` if it hung and was
    /// killed.
    ///
    /// # Errors
    /// If it can't be waited for.
    pub fn end(&mut self) -> io::Result<Option<ExitStatus>> {
        if let Some(feeder) = self.feeder.take() {
            let _ = feeder.join();
        }
        let rest = std::mem::take(&mut self.rest);
        let input = self.input.take();
        // If the program has died, nobody reads; if it hangs, the thread ends with it.
        let writer = std::thread::spawn(move || {
            if let Some(mut input) = input {
                let _ = input.write_all(&rest);
            }
        });
        let begun = Instant::now();
        let mut ended = None;
        while begun.elapsed() < HANGS {
            if let Some(status) = self.child.try_wait()? {
                ended = Some(status);
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        group::end(self.child.id() as i32);
        let _ = writer.join();
        let _ = self.child.wait();
        Ok(ended)
    }
}

fn clone_of(input: &std::process::ChildStdin) -> io::Result<File> {
    use std::os::fd::AsFd;
    Ok(File::from(input.as_fd().try_clone_to_owned()?))
}

/// Mappings of ours, and mapped code that differs from its file, in a process.
pub fn foreign_code(process: u32) -> Vec<String> {
    use std::os::unix::fs::FileExt;
    let mut found = Vec::new();
    let maps = fs::read_to_string(format!("/proc/{process}/maps")).unwrap_or_default();
    let Ok(memory) = File::open(format!("/proc/{process}/mem")) else {
        return found;
    };
    for line in maps.lines() {
        let mut fields = line.split_whitespace();
        let (range, rights) = (fields.next().unwrap_or(""), fields.next().unwrap_or(""));
        let offset = fields.next().unwrap_or("");
        let path = fields.nth(2).unwrap_or("");
        let number = |text: &str| u64::from_str_radix(text, 16).unwrap_or(0);
        let (from, to) = range.split_once('-').unwrap_or_default();
        let executable = rights.as_bytes().get(2) == Some(&b'x');
        if path.contains("sunder") && !path.starts_with('/')
            || path.starts_with("/memfd:sunder")
            || executable && path.is_empty()
        {
            found.push(line.to_owned());
        }
        if !executable || !path.starts_with('/') {
            continue;
        }
        let mut mapped = vec![0; (number(to) - number(from)) as usize];
        let mut filed = vec![0; mapped.len()];
        let there = memory.read_exact_at(&mut mapped, number(from)).is_ok();
        let length = File::open(path)
            .and_then(|file| file.read_at(&mut filed, number(offset)))
            .unwrap_or(0);
        if there && mapped[..length] != filed[..length] {
            found.push(format!("changed code: {line}"));
        }
    }
    found
}
