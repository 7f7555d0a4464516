//! `posix`: the open POSIX test suite, or any folder of C programs or executables that check
//! themselves, natively and under every command that starts a program. The suite is not part of this
//! repository; the caller gives its folder. A test whose native runs differ among themselves is counted and not
//! compared.

use crate::limited::{self, Folder, Ran};
use crate::modes::{MODES, Mode};
use crate::options::Options;
use crate::programs;
use crate::record::Record;
use anyhow::{Context, Result, ensure};
use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write as _;
use std::fs;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::time::Duration;

/// What to run.
#[derive(Clone, Debug, clap::Args)]
pub struct What {
    /// The suite's folder. Every C file below it that has a `main` is a test; its folder `include` is
    /// searched for headers, and the C files of its folder `lib` are linked to each test
    #[arg(long)]
    dir: PathBuf,
    /// The tests are the executables below the folder and not its C files: for glibc's nptl tests, the folder
    /// `nptl` of a build after `make check subdirs=nptl run-built-tests=no`
    #[arg(long)]
    built: bool,
    /// Tests at the same time
    #[arg(long, default_value_t = 2)]
    jobs: usize,
    /// Only this command of the tool, as the table names it; all if not given
    #[arg(long)]
    mode: Option<String>,
}

/// A test that runs longer hangs; the longest of the suite take half a minute.
const LIMIT: Duration = Duration::from_secs(90);
const COLUMNS: [&str; 5] = ["test", "mode", "native", "under", "verdict"];

/// What became of the tests under one mode.
#[derive(Default)]
struct Row {
    equal: u32,
    /// At first, but not in any of the runs that were made again.
    once: u32,
    differs: u32,
}

#[derive(Default)]
struct Counts {
    built: u32,
    not_built: u32,
    /// By the status of the native run, as a shell shows it.
    native: BTreeMap<String, u32>,
    varies: Vec<String>,
    modes: BTreeMap<usize, Row>,
    differences: String,
}

/// What the threads share.
struct Shared {
    record: Record,
    counts: Counts,
    tests: VecDeque<PathBuf>,
}

/// Runs the suite.
///
/// # Errors
/// If a test differed under Sunder, after all are recorded; or if nothing can be run or recorded.
pub fn run(what: &What, options: &Options) -> Result<()> {
    let sunder = programs::sunder()?;
    let mut tests = Vec::new();
    find(&what.dir, what.built, &mut tests)?;
    tests.retain(|test| test.to_string_lossy().contains(&options.only));
    tests.sort();
    ensure!(!tests.is_empty(), "there is no test in the folder");
    let record = Record::new(
        if what.built { "posix-built" } else { "posix" },
        "Every test of a suite natively, twice, and under each command; status and, where the \
         native runs agree in it, output must be the same. What differs is run again three times, \
         natively too.",
        1,
        &COLUMNS,
    )?;
    let shared = Mutex::new(Shared {
        record,
        counts: Counts::default(),
        tests: tests.into(),
    });
    std::thread::scope(|scope| -> Result<()> {
        let all: Vec<_> = (0..what.jobs.max(1))
            .map(|_| scope.spawn(|| share(what, &sunder, &shared)))
            .collect();
        for job in all {
            job.join().ok().context("a thread panicked")??;
        }
        Ok(())
    })?;
    let shared = shared.into_inner().ok().context("a thread panicked")?;
    let differs: u32 = shared.counts.modes.values().map(|row| row.differs).sum();
    let text = summary(&shared.counts);
    shared.record.finish(&text)?;
    ensure!(differs == 0, "{differs} tests were not as natively");
    Ok(())
}

/// All C files below a folder that have a `main`, or all its executables.
fn find(folder: &Path, built: bool, into: &mut Vec<PathBuf>) -> Result<()> {
    let entries =
        fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    for entry in entries {
        let path = entry?.path();
        let is_test = |path: &Path| -> Result<bool> {
            if built {
                return is_executable(path);
            }
            let is_c = path.extension().is_some_and(|e| e == "c");
            Ok(is_c && String::from_utf8_lossy(&fs::read(path)?).contains("main("))
        };
        if path.is_dir() {
            find(&path, built, into)?;
        } else if path.is_file() && is_test(&path)? {
            into.push(path);
        }
    }
    Ok(())
}

/// Whether a file is a program and no library or script.
fn is_executable(path: &Path) -> Result<bool> {
    const ELF: &[u8] = b"\x7fELF";
    let executes = fs::metadata(path)?.permissions().mode() & 0o100 != 0;
    let is_library = path.to_string_lossy().contains(".so");
    if !executes || is_library {
        return Ok(false);
    }
    let mut first = [0; 4];
    let read = fs::File::open(path).and_then(|mut file| file.read_exact(&mut first));
    Ok(read.is_ok() && first == ELF)
}

/// The tests of one thread.
fn share(what: &What, sunder: &Path, shared: &Mutex<Shared>) -> Result<()> {
    let lock = || shared.lock().ok().context("a thread panicked");
    loop {
        let Some(source) = lock()?.tests.pop_front() else {
            return Ok(());
        };
        let folder = Folder::new()?;
        let program = if what.built {
            source.canonicalize()?
        } else {
            let program = folder.path().join("test");
            if !build(&what.dir, &source, &program)? {
                lock()?.counts.not_built += 1;
                continue;
            }
            program
        };
        let test = Test {
            name: source
                .strip_prefix(&what.dir)
                .unwrap_or(&source)
                .display()
                .to_string(),
            program,
            folder: folder.path().to_owned(),
        };
        test.compare(what, sunder, shared)?;
    }
}

/// False if the suite's test does not compile here, or compiles to nothing that can be run.
fn build(dir: &Path, source: &Path, to: &Path) -> Result<bool> {
    let mut command = Command::new("gcc");
    command
        .args(["-std=gnu99", "-O1", "-w", "-pthread", "-I"])
        .arg(dir.join("include"));
    command.arg("-o").arg(to).arg(source);
    for entry in fs::read_dir(dir.join("lib"))
        .into_iter()
        .flatten()
        .flatten()
    {
        if entry.path().extension().is_some_and(|e| e == "c") {
            command.arg(entry.path());
        }
    }
    command.args(["-lrt", "-lm", "-ldl"]);
    Ok(limited::run(&mut command, LIMIT)?
        .status
        .is_some_and(|s| s.success()))
}

/// A test that was built.
struct Test {
    name: String,
    program: PathBuf,
    /// In which it runs, and may leave files.
    folder: PathBuf,
}

impl Test {
    fn native(&self) -> Result<Ran> {
        self.ran(&mut Command::new(&self.program))
    }

    fn under(&self, sunder: &Path, mode: &Mode) -> Result<Ran> {
        let report = self.folder.join("report");
        self.ran(mode.command(sunder, &report).arg(&self.program))
    }

    fn ran(&self, command: &mut Command) -> Result<Ran> {
        // Tests load libraries that lie beside them.
        let libraries = self.program.parent().unwrap_or(Path::new("/"));
        command
            .current_dir(&self.folder)
            .env("LD_LIBRARY_PATH", libraries);
        limited::run(command, LIMIT)
    }

    fn compare(&self, what: &What, sunder: &Path, shared: &Mutex<Shared>) -> Result<()> {
        let lock = || shared.lock().ok().context("a thread panicked");
        let (first, second) = (self.native()?, self.native()?);
        let name = &self.name;
        {
            let counts = &mut lock()?.counts;
            counts.built += 1;
            *counts.native.entry(status(&first)).or_default() += 1;
            if first.wrong(&second, false).is_some() {
                counts.varies.push(name.clone());
                return Ok(());
            }
        }
        let compares = first.stdout == second.stdout;
        for (number, mode) in MODES.iter().enumerate() {
            if what.mode.as_deref().is_some_and(|only| only != mode.name) {
                continue;
            }
            let seen = self.under(sunder, mode)?;
            let Some(why) = seen.wrong(&first, compares) else {
                lock()?.counts.modes.entry(number).or_default().equal += 1;
                continue;
            };
            let (again, varies) = self.again(sunder, mode, &first, compares)?;
            let mut shared = lock()?;
            if varies {
                shared
                    .counts
                    .varies
                    .push(format!("{name} (output or status)"));
                return Ok(());
            }
            let row = shared.counts.modes.entry(number).or_default();
            let verdict = if again == 0 {
                row.once += 1;
                format!("{why} once")
            } else {
                row.differs += 1;
                format!("{why}; {again} of 3 again")
            };
            let told = [name, mode.name, &status(&first), &status(&seen), &verdict];
            println!("{}", told.join(": "));
            shared
                .record
                .row(&told.map(|text| text.replace(',', ";")))?;
            let text = &mut shared.counts.differences;
            writeln!(text, "## {}\n\n{}\n", told.join(", "), seen.stderr)?;
            let text = text.clone();
            shared.record.attach("differences.md", &text)?;
        }
        Ok(())
    }

    /// How many of three more runs differ, and whether native runs do.
    fn again(
        &self,
        sunder: &Path,
        mode: &Mode,
        right: &Ran,
        compares: bool,
    ) -> Result<(u32, bool)> {
        /// What two processes print at once comes in another order once in ten runs or less.
        const NATIVELY: u32 = 5;
        let mut differ = 0;
        for _ in 0..3 {
            for _ in 0..NATIVELY {
                if self.native()?.wrong(right, compares).is_some() {
                    return Ok((0, true));
                }
            }
            let seen = self.under(sunder, mode)?;
            differ += u32::from(seen.wrong(right, compares).is_some());
        }
        Ok((differ, false))
    }
}

fn status(ran: &Ran) -> String {
    ran.status
        .map_or_else(|| "hung".into(), |status| status.to_string())
}

fn summary(counts: &Counts) -> String {
    let mut text = format!(
        "- {} tests were built, {} could not be\n- {} vary natively and were not compared\n",
        counts.built,
        counts.not_built,
        counts.varies.len()
    );
    for (status, times) in &counts.native {
        let _ = writeln!(text, "- natively {status}: {times}");
    }
    text.push_str("\n| mode | as natively | not at first, but in 3 more runs | differs |\n|---|---|---|---|\n");
    for (number, row) in &counts.modes {
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} |",
            MODES[*number].name, row.equal, row.once, row.differs
        );
    }
    if !counts.varies.is_empty() {
        let _ = writeln!(text, "\nVarying natively: {}.", counts.varies.join(", "));
    }
    text
}
