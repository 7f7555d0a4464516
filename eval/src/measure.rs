//! Runs a program once and measures it. Called by every benchmark; compares nothing.

use anyhow::{Context, Result, ensure};
use std::io::{Error, Read, pipe};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use sunder_workloads::default_out_dir;

/// The measurement of one run.
#[derive(Clone, Debug, PartialEq)]
pub struct Measurement {
    /// Seconds from start to exit.
    pub wall: f64,
    /// User and system seconds of the program and everything that it waited for.
    pub cpu: f64,
    /// The same for the program's own process alone.
    pub own_cpu: f64,
    /// The largest resident set of the program or of any process that it waited
    /// for, in KiB.
    pub peak_kib: u64,
    /// The raw wait status.
    pub status: i32,
    /// Its standard output.
    pub stdout: Vec<u8>,
}

impl Measurement {
    /// What can be told of its end: the wait status, and the beginning of its output.
    pub fn did(&self) -> String {
        let output = String::from_utf8_lossy(&self.stdout);
        let beginning: String = output.chars().take(200).collect();
        format!("wait status {}, output {beginning:?}", self.status)
    }

    /// User and system seconds of the processes that the program waited for: under `detect`, of the
    /// observed program.
    pub fn children_cpu(&self) -> f64 {
        (self.cpu - self.own_cpu).max(0.0)
    }
}

/// Runs `command` without input and keeps its standard output. A launcher of a few hundred KiB
/// starts it, because the peak of a process's memory begins with its parent's size.
///
/// # Errors
/// If it can't be started or waited for.
pub fn run(command: &mut Command) -> Result<Measurement> {
    let (mut reader, writer) = pipe().context("no pipe")?;
    let mut launch = Command::new(launcher()?);
    launch
        .arg(writer.as_raw_fd().to_string())
        .arg(command.get_program())
        .args(command.get_args())
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => launch.env(name, value),
            None => launch.env_remove(name),
        };
    }
    if let Some(folder) = command.get_current_dir() {
        launch.current_dir(folder);
    }
    // SAFETY: takes integers; the descriptor is open, and no other thread starts processes.
    let inherited = unsafe { libc::fcntl(writer.as_raw_fd(), libc::F_SETFD, 0) };
    ensure!(inherited == 0, Error::last_os_error());
    let mut child = launch
        .spawn()
        .with_context(|| format!("cannot start {launch:?}"))?;
    drop(writer);
    let mut stdout = Vec::new();
    child
        .stdout
        .take()
        .context("standard output was piped")?
        .read_to_end(&mut stdout)?;
    let mut figures = String::new();
    reader.read_to_string(&mut figures)?;
    let ended = child.wait()?;
    ensure!(ended.success(), "cannot start {command:?}: {ended}");
    let figures: Vec<i64> = figures
        .split_whitespace()
        .map(str::parse)
        .collect::<std::result::Result<_, _>>()?;
    let [status, wall_ns, own_ns, cpu_us, peak_kib] = figures[..] else {
        anyhow::bail!("the launcher told {figures:?}");
    };
    Ok(Measurement {
        wall: wall_ns as f64 / 1e9,
        cpu: cpu_us as f64 / 1e6,
        own_cpu: own_ns as f64 / 1e9,
        peak_kib: u64::try_from(peak_kib).unwrap_or(0),
        status: i32::try_from(status)?,
        stdout,
    })
}

/// The launcher, built if it is not there or older than its source.
fn launcher() -> Result<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("programs/launch.c");
    let folder = default_out_dir();
    std::fs::create_dir_all(&folder)?;
    let program = folder.join("launch");
    let changed = |path: &Path| path.metadata().and_then(|m| m.modified()).ok();
    if changed(&program) > changed(&source) {
        return Ok(program);
    }
    // Tests run side by side: build to a name of this thread's and rename.
    let aside = folder.join(format!("launch.{:?}", std::thread::current().id()));
    // Without a static C library the launcher is larger, but still small.
    for flags in [&["-Os", "-static"][..], &["-Os"]] {
        let built = Command::new("gcc")
            .args(flags)
            .arg("-o")
            .arg(&aside)
            .arg(&source)
            .stderr(Stdio::null())
            .status()
            .context("cannot run gcc")?;
        if built.success() {
            std::fs::rename(&aside, &program)?;
            return Ok(program);
        }
    }
    anyhow::bail!("{} does not build", source.display())
}

/// The median; 0 for an empty list.
pub fn median(values: &[f64]) -> f64 {
    quantile(values, 0.5)
}

/// The value below which a share of `values` lies, interpolated between two of them; 0 for an empty
/// list.
pub fn quantile(values: &[f64], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let Some(last) = sorted.len().checked_sub(1) else {
        return 0.0;
    };
    let place = share.clamp(0.0, 1.0) * last as f64;
    let (low, high) = (
        sorted[place.floor() as usize],
        sorted[place.ceil() as usize],
    );
    low + (high - low) * place.fract()
}

/// FNV-1a, to compare the outputs of two runs.
pub fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_even_number_lies_between_the_middle_two() {
        assert_eq!(median(&[4.0, 1.0, 3.0, 2.0]), 2.5);
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[]), 0.0);
    }

    #[test]
    fn a_run_keeps_output_and_status() {
        let seen = run(Command::new("sh").args(["-c", "echo hi; exit 3"])).expect("sh runs");
        assert_eq!(seen.stdout, b"hi\n");
        assert_eq!(libc::WEXITSTATUS(seen.status), 3);
        assert!(seen.wall > 0.0 && seen.peak_kib > 0);
    }

    #[test]
    fn quartiles_lie_between_values_in_proportion() {
        let values = [40.0, 10.0, 30.0, 20.0, 50.0];
        assert_eq!(quantile(&values, 0.25), 20.0);
        assert_eq!(quantile(&values[..4], 0.75), 32.5);
        assert_eq!(quantile(&[7.0], 0.9), 7.0);
    }

    #[test]
    fn the_memory_of_the_measuring_process_is_not_counted() {
        // 32 MiB of ours, written so that they are resident.
        let ours = vec![1u8; 32 << 20];
        let seen = run(&mut Command::new("true")).expect("true runs");
        assert!(std::hint::black_box(&ours).iter().all(|&b| b == 1));
        assert!(seen.peak_kib < 16 << 10, "{} KiB", seen.peak_kib);
    }

    #[test]
    fn cpu_time_of_children_is_reported_separately() {
        let spin = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done";
        let own = run(Command::new("sh").args(["-c", spin])).expect("sh runs");
        let inner = format!("sh -c '{spin}'; true");
        let child = run(Command::new("sh").args(["-c", &inner])).expect("sh runs");
        assert!(own.children_cpu() < own.own_cpu, "{own:?}");
        assert!(child.own_cpu < child.children_cpu(), "{child:?}");
    }

    #[test]
    fn a_program_that_is_not_there_is_an_error() {
        assert!(run(&mut Command::new("/nonexistent/program")).is_err());
    }
}
