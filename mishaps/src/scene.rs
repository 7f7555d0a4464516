//! One run of a program under the tool, to which something happens meanwhile. What is left of it
//! afterwards is collected, also processes that lost their parent: this process adopts them.

use crate::attached::{Attached, foreign_code};
use crate::mishap::{Mishap, Shortage, Way};
use crate::mode::{Mode, Start};
use crate::places::{Places, done};
use crate::shortage::suffer;
use crate::subject::{Input, Subject};
use crate::terminal::Terminal;
use crate::watch::{Children, adopt, watch};
use std::ffi::{CString, OsString};
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// A mode, a program and the tool.
#[derive(Debug)]
pub struct Scene<'a> {
    /// The mode.
    pub mode: &'a Mode,
    /// The program.
    pub subject: &'a Subject,
    /// The tool's file.
    pub sunder: &'a Path,
    /// Where files may be.
    pub places: &'a Places,
}

/// How the program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    /// It outlived the tool and ended so, or the tool only was attached to it.
    Ended(ExitStatus),
    /// Nobody but the tool knows.
    OfTool,
    /// It hung and was killed.
    Hung,
}

/// What became of a run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The tool's status; `None` if it hung and was killed.
    pub tool: Option<ExitStatus>,
    /// How the program ended.
    pub program: Program,
    /// The program's output.
    pub stdout: Vec<u8>,
    /// What the tool said, and whatever the program says on standard error.
    pub stderr: String,
    /// How long the tool lived.
    pub life: Duration,
    /// Processes that did not end.
    pub processes: String,
    /// Files that were left behind.
    pub files: Vec<String>,
    /// Code of ours, or changed code, in a program to which the tool was attached.
    pub code: Vec<String>,
}

impl Scene<'_> {
    /// The program alone.
    ///
    /// # Errors
    /// If it can't be started.
    pub fn natively(&self, shortage: Option<Shortage>) -> io::Result<Outcome> {
        let mut command = Command::new(&self.subject.program);
        command.args(&self.subject.arguments);
        self.set_up(&mut command, shortage)?;
        if self.subject.input != Input::Nothing {
            let mut program = Attached::start(command, &self.subject.input, &self.file("stdout"))?;
            let status = program.end()?.map_or(Program::Hung, Program::Ended);
            return Ok(self.outcome(Some(ExitStatus::from_raw(0)), status, Duration::ZERO, ""));
        }
        let begun = Instant::now();
        let (group, _) = self.spawn(command, false)?;
        let (tool, _, left) = watch(group, &mut |_| ());
        let program = tool.map_or(Program::Hung, Program::Ended);
        Ok(self.outcome(tool, program, begun.elapsed(), &left))
    }

    /// The program under the tool, to which `mishap` happens; `seed` is for the mode.
    ///
    /// # Errors
    /// If something can't be started.
    pub fn run(&self, mishap: &Mishap, seed: u64) -> io::Result<Outcome> {
        self.run_after(mishap.words(), mishap, seed)
    }

    /// The same with other words before `sunder`.
    ///
    /// # Errors
    /// As [`Scene::run`].
    pub fn run_after(
        &self,
        words: Vec<OsString>,
        mishap: &Mishap,
        seed: u64,
    ) -> io::Result<Outcome> {
        adopt()?;
        let shortage = match mishap {
            Mishap::Short(shortage) => Some(*shortage),
            _ => None,
        };
        let mut attached = None;
        if self.mode.start == Start::Before {
            let mut program = Command::new(&self.subject.program);
            program.args(&self.subject.arguments);
            self.set_up(&mut program, None)?;
            program.stderr(Stdio::null());
            attached = Some(Attached::start(
                program,
                &self.subject.input,
                &self.file("stdout"),
            )?);
        }
        let mut words = words.into_iter().chain([self.sunder.into()]);
        let mut command = Command::new(words.next().unwrap_or_default());
        command.args(words).args(self.words(seed, shortage));
        match &attached {
            Some(program) => command.arg("--pid").arg(program.id().to_string()),
            None => command
                .arg("--")
                .arg(&self.subject.program)
                .args(&self.subject.arguments),
        };
        if attached.is_none() {
            self.set_up(&mut command, shortage)?;
        } else {
            // The usual files are the program's already.
            self.surround(&mut command, shortage)?;
            command.stdout(Stdio::null());
        }
        let begun = Instant::now();
        let terminal = mishap.way() == Some(Way::ClosedTerminal);
        let (group, mut terminal) = self.spawn(command, terminal)?;
        let mut to_come = match mishap {
            Mishap::After(way, time) => Some((*way, *time)),
            _ => None,
        };
        let mut life = None;
        let mut children = Children::default();
        let (tool, others, left) = watch(group, &mut |tool_lives| {
            if tool_lives {
                children.look(group);
            } else {
                life.get_or_insert_with(|| begun.elapsed());
            }
            if let Some(open) = &mut terminal {
                open.drain();
            }
            let Some((way, time)) = to_come else { return };
            let Some(rest) = time.checked_sub(begun.elapsed()) else {
                to_come = None;
                match way {
                    Way::ClosedTerminal => terminal = None,
                    // SAFETY: takes integers. The tool has not been waited for.
                    way if tool_lives => unsafe { _ = libc::kill(group, way.signal()) },
                    Way::Kill | Way::Terminate => (),
                }
                return;
            };
            std::thread::sleep(rest.min(Duration::from_millis(1)));
        });
        let life = life.unwrap_or_else(|| begun.elapsed());
        if let Some(mut program) = attached {
            // Without the tool, threads that reach for moved bytes put them back themselves.
            std::thread::sleep(Duration::from_millis(20));
            let code = foreign_code(program.id());
            let ended = program.end()?.map_or(Program::Hung, Program::Ended);
            let mut outcome = self.outcome(tool, ended, life, &left);
            outcome.code = code;
            return Ok(outcome);
        }
        // A tool that exits with what the program exits with has waited for it; the others are what
        // the program has started.
        let passed_on = mishap.way().map(|way| 128 + way.signal());
        let waited = tool
            .and_then(|status| status.code())
            .is_some_and(|code| code == self.subject.status || Some(code) == passed_on);
        let program = match children.program(&others) {
            _ if !left.is_empty() => Program::Hung,
            Some(first) if !waited => Program::Ended(first.status),
            _ => Program::OfTool,
        };
        Ok(self.outcome(tool, program, life, &left))
    }

    fn file(&self, name: &str) -> PathBuf {
        self.places.own().join(name)
    }

    /// The tool's words up to those of the program.
    fn words(&self, seed: u64, shortage: Option<Shortage>) -> Vec<OsString> {
        let own = self.mode.own_words.iter().filter(|_| self.subject.own);
        let fill = |word: &&str| match *word {
            "FILE" => self.scarce(shortage).join("written").into(),
            "SEED" => seed.to_string().into(),
            word => word.into(),
        };
        self.mode.words.iter().chain(own).map(fill).collect()
    }

    /// Where the tool may write files.
    fn scarce(&self, shortage: Option<Shortage>) -> PathBuf {
        match shortage {
            Some(Shortage::FullDisk | Shortage::ReadOnly) => self.file("scarce"),
            _ => self.places.own().to_owned(),
        }
    }

    /// Gives the command streams, and what [`Scene::surround`] gives.
    fn set_up(&self, command: &mut Command, shortage: Option<Shortage>) -> io::Result<()> {
        command.stdout(File::create(self.file("stdout"))?);
        self.surround(command, shortage)
    }

    /// Gives the command an environment, with the shortage.
    fn surround(&self, command: &mut Command, shortage: Option<Shortage>) -> io::Result<()> {
        let (scarce, own) = (self.file("scarce"), self.scarce(shortage));
        fs::create_dir_all(&scarce)?;
        command.stdin(Stdio::null());
        command.stderr(File::create(self.file("stderr"))?);
        command.env("NO_COLOR", "1").env("RUST_BACKTRACE", "0");
        if let Some(temporary) = self.places.temporary() {
            command.env("TMPDIR", temporary);
        }
        if own == scarce {
            command.env("TMPDIR", &scarce);
        }
        let Some(shortage) = shortage else {
            return Ok(());
        };
        let scarce = CString::new(scarce.as_os_str().as_bytes())?;
        // SAFETY: the closure makes nothing but system calls.
        unsafe { command.pre_exec(move || suffer(shortage, &scarce)) };
        Ok(())
    }

    /// Starts a process in a group of its own, with a terminal of its own if `terminal` says so.
    fn spawn(&self, mut command: Command, terminal: bool) -> io::Result<(i32, Option<Terminal>)> {
        let mut ours = None;
        if terminal {
            let (open, other) = Terminal::open()?;
            command.stdin(other.try_clone()?).stderr(other);
            // SAFETY: both calls are async-signal-safe.
            unsafe {
                command.pre_exec(|| {
                    libc::setsid();
                    done(libc::ioctl(0, libc::TIOCSCTTY, 0))
                });
            }
            ours = Some(open);
        } else {
            command.process_group(0);
        }
        // SAFETY: setting a default disposition is async-signal-safe.
        unsafe {
            command.pre_exec(|| {
                // Also if we run under `nohup`.
                for signal in [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM] {
                    libc::signal(signal, libc::SIG_DFL);
                }
                Ok(())
            });
        }
        // Waited for by `watch`.
        let child = command.spawn()?;
        Ok((child.id() as i32, ours))
    }

    fn outcome(
        &self,
        tool: Option<ExitStatus>,
        program: Program,
        life: Duration,
        left: &str,
    ) -> Outcome {
        let read = |name: &str| fs::read(self.file(name)).unwrap_or_default();
        let _ = fs::remove_file(self.file("written"));
        Outcome {
            tool,
            program,
            stdout: read("stdout"),
            stderr: String::from_utf8_lossy(&read("stderr")).into_owned(),
            life,
            processes: left.to_owned(),
            files: self.places.left(),
            code: Vec::new(),
        }
    }
}
