//! The programs of the benchmarks: the `sunder` of this workspace, the workloads at a benchmark's
//! size, and two programs that do little but allocate.

use crate::options::{Options, Set};
use anyhow::{Context, Result, ensure};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use sunder_findings::Findings;
use sunder_workloads::{Table, Variant, Workload, default_out_dir};

/// A program to measure.
#[derive(Clone)]
pub struct Target {
    /// Its name in tables.
    pub name: String,
    /// `shared` or `fixed`.
    pub variant: &'static str,
    program: PathBuf,
    arguments: Vec<String>,
}

impl Target {
    /// Gives the program `times` as much work: the size is its last argument.
    ///
    /// # Errors
    /// If the last argument is no number, or becomes too large.
    pub fn longer(&mut self, times: u64) -> Result<()> {
        let size = self.arguments.last_mut().context("it has no size")?;
        let longer = size.parse::<u64>()?.checked_mul(times);
        *size = longer.context("too large")?.to_string();
        Ok(())
    }

    /// The same program with so many threads: the first argument.
    #[must_use]
    pub fn with_threads(&self, threads: u32) -> Self {
        let mut other = self.clone();
        if let Some(first) = other.arguments.first_mut() {
            *first = threads.to_string();
        }
        other
    }

    /// The command that runs it natively.
    pub fn native(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.arguments);
        command
    }

    /// The command that runs it, with the words of another command before it, if there are any.
    pub fn after(&self, before: &[OsString]) -> Command {
        let mut words = before.iter().cloned().chain([self.program.clone().into()]);
        let mut command = Command::new(words.next().unwrap_or_default());
        command.args(words).args(&self.arguments);
        command
    }

    /// The command that runs it under `sunder detect` with these options.
    pub fn detected(&self, sunder: &Path, options: &[&str]) -> Command {
        self.under(sunder, "detect", options)
    }

    /// The command that runs it under another command of `sunder` that starts
    /// programs.
    pub fn under(&self, sunder: &Path, name: &str, options: &[&str]) -> Command {
        let mut command = Command::new(sunder);
        command
            .arg(name)
            .args(options)
            .arg("--")
            .arg(&self.program)
            .args(&self.arguments);
        command
    }
}

/// Builds `sunder` for release and returns its path.
///
/// # Errors
/// If it does not build.
pub fn sunder() -> Result<PathBuf> {
    let home = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let built = Command::new(cargo)
        .args(["build", "--release", "-p", "sunder-cli"])
        .current_dir(&home)
        .status()
        .context("cannot run cargo")?;
    ensure!(built.success(), "sunder does not build");
    let own = std::env::current_exe()?;
    let path = own.with_file_name("sunder");
    ensure!(path.exists(), "{} is missing", path.display());
    Ok(path)
}

/// All workloads of the set that `options` do not exclude, in both variants, built.
///
/// # Errors
/// If one does not build.
pub fn workloads(options: &Options) -> Result<Vec<(Workload, Variant, Target)>> {
    let mut all = Vec::new();
    let table = match options.set {
        Set::Workloads => Table::load()?,
        Set::Pairs => Table::load_pairs()?,
    };
    for workload in table.workloads {
        if !workload.name.contains(&options.only) {
            continue;
        }
        let own = [workload.threads];
        let counts = match options.threads.as_slice() {
            [] => &own[..],
            counts => counts,
        };
        for &threads in counts {
            for variant in Variant::ALL {
                let program = workload.build(variant, &default_out_dir())?;
                if threads != workload.threads && !runs_with(&program, threads)? {
                    println!(
                        "{}: left out, it does not run with {threads} threads",
                        workload.name
                    );
                    break;
                }
                let mut workload = workload.clone();
                workload.threads = threads;
                if options.threads.len() > 1 {
                    workload.name = format!("{} ({threads} threads)", workload.name);
                }
                let target = Target {
                    name: workload.name.clone(),
                    variant: variant.name(),
                    program,
                    arguments: vec![
                        threads.to_string(),
                        (workload.size * options.scale).to_string(),
                    ],
                };
                all.push((workload, variant, target));
            }
        }
    }
    Ok(all)
}

/// Whether a workload can have so many threads: some have room for a few only.
fn runs_with(program: &Path, threads: u32) -> Result<bool> {
    let tried = Command::new(program)
        .args([threads.to_string(), "1000".to_owned()])
        .output()
        .with_context(|| format!("cannot run {}", program.display()))?;
    Ok(tried.status.success())
}

/// Programs that do little but allocate, in two threads: as fast as they can, and at about 20
/// million pairs a second. Each with the number of its pairs.
///
/// # Errors
/// If one does not build.
pub fn allocating(options: &Options) -> Result<Vec<(Target, u64)>> {
    [("malloc_churn", 10_000_000), ("malloc_steady", 5_000_000)]
        .into_iter()
        .filter(|(name, _)| name.contains(&options.only))
        .map(|(name, pairs)| {
            let pairs = pairs * options.scale;
            Ok((own_program(name, pairs)?, 2 * pairs))
        })
        .collect()
}

/// `eval/programs/NAME.c` with two threads, each of which does `count` operations.
fn own_program(name: &str, count: u64) -> Result<Target> {
    Ok(Target {
        name: name.into(),
        variant: "fixed",
        program: built(name, "-O2")?,
        arguments: vec!["2".into(), count.to_string()],
    })
}

/// `eval/programs/NAME.c`, built.
///
/// # Errors
/// If it does not build.
pub fn built(name: &str, optimized: &str) -> Result<PathBuf> {
    let home = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = default_out_dir();
    std::fs::create_dir_all(&folder)?;
    let program = folder.join(name);
    let built = Command::new("gcc")
        .args([optimized, "-g", "-pthread", "-o"])
        .arg(&program)
        .arg(home.join("programs").join(name).with_extension("c"))
        .status()
        .context("cannot run gcc")?;
    ensure!(built.success(), "{name}.c does not build");
    Ok(program)
}

/// `eval/programs/NAME.c`, built static and without a C library.
///
/// # Errors
/// If it does not build.
pub fn built_alone(name: &str) -> Result<PathBuf> {
    let home = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = default_out_dir();
    std::fs::create_dir_all(&folder)?;
    let program = folder.join(name);
    let built = Command::new("gcc")
        .args(["-O2", "-static", "-nostdlib", "-o"])
        .arg(&program)
        .arg(home.join("programs").join(name).with_extension("c"))
        .status()
        .context("cannot run gcc")?;
    ensure!(built.success(), "{name}.c does not build");
    Ok(program)
}

/// Runs `target` under detect and reads the result.
///
/// # Errors
/// If it can't be run or leaves no result.
pub fn findings(target: &Target, sunder: &Path, options: &[&str]) -> Result<Findings> {
    let file = std::env::temp_dir().join(format!("sunder-eval-{}.json", std::process::id()));
    let path = file.to_string_lossy().into_owned();
    let mut all = vec!["--quiet", "--format", "json", "-o", &path];
    all.extend(options);
    let seen = crate::measure::run(&mut target.detected(sunder, &all))?;
    ensure!(
        seen.status == 0,
        "{} ended with wait status {}",
        target.name,
        seen.status
    );
    let result = Findings::open(&file)?;
    std::fs::remove_file(&file)?;
    Ok(result)
}
