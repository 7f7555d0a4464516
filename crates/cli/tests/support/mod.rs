//! What the end-to-end tests share: the program under test and small C targets
//! that are compiled on first use.

#![allow(dead_code, reason = "each test binary uses a part of it")]

pub mod asked;
pub mod built;
pub mod by_hand;
pub mod cases;
pub mod confine;
pub mod contention;
pub mod counting;
pub mod engines;
pub mod installed;
pub mod limited;
pub mod natively;
pub mod repaired;
pub mod replays;
pub mod skips;
pub mod small_disk;
pub mod targets;

use assert_cmd::Command;
use std::path::{Path, PathBuf};

/// The `sunder` that cargo built for this test.
pub fn sunder() -> Command {
    usual_signals();
    let mut command = Command::new(env!("CARGO_BIN_EXE_sunder"));
    command.timeout(std::time::Duration::from_secs(120));
    command.env("NO_COLOR", "1").env("LC_ALL", "C.UTF-8");
    command
}

/// The same as a plain command: for tests that talk to it while it runs or that change its
/// environment.
pub fn plain_sunder() -> std::process::Command {
    usual_signals();
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_sunder"));
    command.env("NO_COLOR", "1").env("LC_ALL", "C.UTF-8");
    command
}

/// Copies a program with `cp`. If this process copied it, a child that another test forks meanwhile
/// would inherit the descriptor that is open for writing until it executes its own program, and a
/// file that is open for writing can't be executed.
pub fn copy_program(from: &Path, to: &Path) {
    let copied = std::process::Command::new("cp").arg(from).arg(to).status();
    assert!(copied.expect("cp starts").success(), "{}", to.display());
}

/// Sets the signals of programs started later to a terminal shell's dispositions, also if the tests
/// run under `nohup` or in the background of a script.
pub fn usual_signals() {
    for signal in [
        libc::SIGHUP,
        libc::SIGINT,
        libc::SIGQUIT,
        libc::SIGTERM,
        libc::SIGUSR1,
        libc::SIGUSR2,
    ] {
        // SAFETY: the default disposition needs no handler.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
}

/// `sunder detect -- PROGRAM…`.
pub fn detect(program: &[&str]) -> Command {
    let mut command = sunder();
    command.args(["detect", "--"]).args(program);
    command
}

/// Compiles `tests/programs/NAME.c` with `-O1 -g -pthread` and `flags`.
///
/// Returns `None`, with a notice, if the compiler can't link with these flags here (a machine
/// without static libraries, for example).
pub fn c_program(name: &str, flags: &[&str]) -> Option<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/programs")
        .join(name)
        .with_extension("c");
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let program = folder.join(format!("{name}{}", flags.concat().replace('/', "-")));
    let mut compiler = std::process::Command::new("gcc");
    compiler.args(["-O1", "-g", "-pthread"]);
    if let Err(errors) = built::once(&program, compiler.arg(source).args(flags)) {
        assert!(!flags.is_empty(), "{errors}");
        println!("SKIP: {name} with {flags:?}: {errors}");
        return None;
    }
    Some(program)
}

/// Whether the perf observer works here; prints a notice if not.
pub fn perf_works() -> bool {
    let mut probe = sunder();
    probe.args(["detect", "--quiet", "--observer", "perf", "--", "true"]);
    let works = probe.output().is_ok_and(|o| o.status.success());
    if !works {
        println!("SKIP: perf is refused here");
    }
    works
}

/// Waits until the Sunder with process id `sunder` observes: until it keeps perf events open. It
/// opens and closes some before that, to find out what the machine can do.
pub fn observed(sunder: u32, target: &str) {
    let holds = || {
        let Ok(folder) = std::fs::read_dir(format!("/proc/{sunder}/fd")) else {
            return false;
        };
        let links = folder
            .flatten()
            .filter_map(|f| std::fs::read_link(f.path()).ok());
        links
            .filter(|l| l.to_string_lossy().contains("perf_event"))
            .count()
            > 0
    };
    let mut seen = 0;
    for _ in 0..3000 {
        std::thread::sleep(std::time::Duration::from_millis(10));
        seen = if holds() { seen + 1 } else { 0 };
        if seen >= 5 {
            return;
        }
    }
    panic!("sunder does not observe {target} within half a minute");
}

/// A process that is killed when this value is dropped, at the latest with the test.
pub struct Ended(std::process::Child);

impl Ended {
    /// Starts the command.
    pub fn new(command: &mut std::process::Command) -> Self {
        Self(command.spawn().expect("the program starts"))
    }

    /// Takes a process that has been started.
    pub const fn from(child: std::process::Child) -> Self {
        Self(child)
    }

    /// The process id, as an argument.
    pub fn id(&self) -> String {
        self.0.id().to_string()
    }

    /// Sends the process a signal.
    pub fn kill(&self, signal: i32) {
        // SAFETY: takes two integers; the process has not been waited for.
        assert_eq!(unsafe { libc::kill(self.0.id() as i32, signal) }, 0);
    }

    /// The process, for its streams and its end.
    pub const fn child(&mut self) -> &mut std::process::Child {
        &mut self.0
    }
}

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
