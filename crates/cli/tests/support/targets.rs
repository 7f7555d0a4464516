//! Workloads with known answers as targets, and runs of them that are only
//! judged when their threads ran at the same time.

use super::contention;
use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use sunder_findings::{Finding, Findings, Frame, Sharing};
use sunder_workloads::{Table, Variant, Workload, default_out_dir};

/// How often a test tries to get its threads side by side on a busy machine, and for how long.
const MOST_RUNS: u32 = 20;
const LONGEST: Duration = Duration::from_secs(15);
/// After this many runs that failed while threads contended, the test fails.
pub const MOST_FAILED: u32 = 2;

/// A row of either table of workloads.
pub fn workload(name: &str) -> Workload {
    let table = Table::load().expect("the table is well-formed");
    let pairs = Table::load_pairs().expect("the table of pairs is well-formed");
    let mut all = table.workloads.into_iter().chain(pairs.workloads);
    let found = all.find(|w| w.name == name);
    found.expect("a table has this workload")
}

/// The workload's program.
pub fn build(name: &str, variant: Variant) -> PathBuf {
    let built = workload(name).build(variant, &default_out_dir());
    built.unwrap_or_else(|error| panic!("{error}"))
}

/// Compiles the program that counts falsely shared numbers, and says that its source is the file
/// `source`, to the file `to`.
pub fn compile_disguised(source: &Path, flags: &[&str], to: &Path) {
    let compiled = std::process::Command::new("gcc")
        .args(["-O1", "-pthread", "-o"])
        .arg(to)
        .arg(format!("-DSOURCE=\"{}\"", source.display()))
        .args(flags)
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/disguised.c"))
        .status();
    let compiled = compiled.expect("gcc is needed, as the README says");
    assert!(compiled.success(), "{}", to.display());
}

/// A lock for tests whose target computes. The tests of one binary are threads of one process: their
/// targets would compete for the CPUs, and each test would count the CPU time of the others.
pub fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// While this value lives, processes that the calling thread starts have a raised priority, where
/// that is allowed: other work of the machine then does not decide whether threads run side by
/// side. Keep it for as short as possible, because other programs wait meanwhile.
pub struct BeforeOthers {
    before: i32,
    /// The session's previous priority, with autogroup scheduling: there, a thread's priority
    /// counts only within its session.
    session: Option<String>,
}

const GROUP: &str = "/proc/self/autogroup";

/// Gives the session of `process` the priority that ours has now. A program in a session of its own,
/// as each terminal has, would get next to no CPU time beside a target that is [`before_others`].
pub fn as_our_session(process: u32) {
    let told = std::fs::read_to_string(GROUP).unwrap_or_default();
    if let Some(session) = told.split_whitespace().last() {
        let _ = std::fs::write(format!("/proc/{process}/autogroup"), session);
    }
}

/// See [`BeforeOthers`].
pub fn before_others() -> BeforeOthers {
    let told = std::fs::read_to_string(GROUP).unwrap_or_default();
    let session = told.split_whitespace().last().map(ToOwned::to_owned);
    let _ = std::fs::write(GROUP, "-20");
    // SAFETY: takes integers; sets the calling thread's priority, which its children inherit.
    unsafe {
        let before = libc::getpriority(libc::PRIO_PROCESS, 0);
        libc::setpriority(libc::PRIO_PROCESS, 0, -20);
        BeforeOthers { before, session }
    }
}

impl Drop for BeforeOthers {
    fn drop(&mut self) {
        if let Some(session) = &self.session {
            let _ = std::fs::write(GROUP, session);
        }
        // SAFETY: as above.
        unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, self.before) };
    }
}

/// Calls `run`; what it returns, and whether the processes that it started used 1.5 CPUs or more.
pub fn has_two_cpus<T>(run: impl FnOnce() -> T) -> (T, bool) {
    let (cpu, start) = (children_cpu(), Instant::now());
    let result = run();
    let used = children_cpu() - cpu;
    (result, used >= 1.5 * start.elapsed().as_secs_f64())
}

/// Calls `run` until it succeeds. Its errors count only if the program used 1.5 CPUs or more,
/// because threads that take turns do not pass a line back and forth, and only if threads of this test
/// slow each other down on one line ([`contention`]). Of these errors the second one fails the test:
/// between a run and that measurement, the two CPUs of a virtual machine may have become two cores
/// again. The CPU time is that in the result that `run` opened last, or what it said by [`took`]. Only if
/// there is none, it is the time of all children, which includes children of other tests. On a machine
/// that is too busy the test prints `SKIP:`, and the binary's run fails if half of its checks are skipped
/// ([`super::skips`]).
pub fn side_by_side(what: &str, run: impl FnMut() -> Result<(), String>) {
    in_a_row(what, 1, run);
}

/// The same for a `run` of several programs of two threads, each as long as the others. All
/// together must have used so much of two CPUs that none can have used less than 1.5.
pub fn in_a_row(what: &str, programs: u32, mut run: impl FnMut() -> Result<(), String>) {
    let needed = 2.0 - 0.5 / f64::from(programs);
    super::skips::begun();
    if std::thread::available_parallelism().map_or(1, usize::from) < 2 {
        println!("SKIP: {what}: one CPU: no line moves between cores");
        return;
    }
    let _alone = alone();
    let _first = before_others();
    let mut complaint = String::new();
    let mut failed = 0;
    let begin = Instant::now();
    for run_number in 0..MOST_RUNS {
        if run_number > failed && begin.elapsed() > LONGEST {
            break;
        }
        let cpu = children_cpu();
        let start = Instant::now();
        OPENED.take();
        let Err(wrong) = run() else {
            return;
        };
        let all = (children_cpu() - cpu, start.elapsed().as_secs_f64());
        let (cpu, wall) = OPENED.take().unwrap_or(all);
        complaint = wrong;
        if cpu >= needed * wall {
            let (felt, told) = contention::is_felt();
            failed += u32::from(felt);
            assert!(
                failed < MOST_FAILED,
                "{what}: {complaint}\n{cpu:.2} s of CPU time in {wall:.2} s; {told}"
            );
            complaint = format!("{complaint}\n{told}");
        }
    }
    super::skips::too_busy();
    println!(
        "SKIP: {what}: the threads never contended side by side in {} s; the last time: {complaint}",
        begin.elapsed().as_secs()
    );
}

thread_local! {
    /// CPU seconds and wall seconds of the program whose result was opened last, or by [`took`].
    static OPENED: Cell<Option<(f64, f64)>> = const { Cell::new(None) };
}

/// Says for the present run of [`side_by_side`] that its program used `cpu` seconds of CPU time in
/// `wall` seconds. For programs that write no result, or are no children of the test.
pub fn took(cpu: f64, wall: f64) {
    OPENED.set(Some((cpu, wall)));
}

/// CPU seconds of all children that have been waited for.
pub fn children_cpu() -> f64 {
    // SAFETY: `rusage` is plain data for which zeroes are valid.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer to `usage` is valid.
    unsafe { libc::getrusage(libc::RUSAGE_CHILDREN, &raw mut usage) };
    let seconds = |t: libc::timeval| t.tv_sec as f64 + t.tv_usec as f64 / 1e6;
    seconds(usage.ru_utime) + seconds(usage.ru_stime)
}

/// The result in `file`.
pub fn open(file: &Path) -> Result<Findings, String> {
    let result = Findings::open(file).map_err(|e| format!("{}: {e}", file.display()))?;
    let cpu = result.run.program_cpu_seconds;
    OPENED.set(cpu.map(|cpu| (cpu, result.run.seconds)));
    Ok(result)
}

/// What `sunder detect` finds in a program, without what is latent.
pub fn found(program: &Path) -> Result<Vec<Finding>, String> {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("result.json");
    let mut command = super::plain_sunder();
    command.args(["detect", "--quiet", "-o"]).arg(&file);
    let seen = command.arg("--").arg(program).output();
    assert!(seen.expect("sunder starts").status.success());
    let mut findings = open(&file)?.findings;
    findings.retain(|f| !f.latent);
    Ok(findings)
}

/// The falsely shared object that `is` picks, among those above the threshold.
pub fn falsely_shared(
    findings: &Findings,
    is: impl Fn(&Finding) -> bool,
) -> Result<&Finding, String> {
    let threshold = findings.run.threshold_percent;
    findings
        .findings
        .iter()
        .filter(|f| !f.latent && f.sharing != Sharing::True && f.cost_percent >= threshold)
        .find(|f| is(f))
        .ok_or_else(|| {
            let all: Vec<_> = findings.findings.iter().map(|f| f.subject()).collect();
            format!(
                "not found among {all:?} ({} samples, {} threads); limits: {:#?}",
                findings.run.samples, findings.run.threads, findings.limits
            )
        })
}

/// The global of this name.
pub fn global(name: &str) -> impl Fn(&Finding) -> bool {
    move |f| {
        f.object.kind == sunder_findings::ObjectKind::Global
            && f.object.name.as_deref() == Some(name)
    }
}

/// Whether `finding` has the fields and the allocation that the table of
/// workloads gives for the first finding of `name`. A field that is touched
/// rarely may not have been sampled: two are enough.
pub fn as_expected(finding: &Finding, name: &str) -> Result<(), String> {
    let workload = workload(name);
    let expected = &workload.verdict(Variant::Shared).findings[0];
    names_fields(finding, &expected.fields)?;
    let Some(allocation) = &expected.allocation else {
        return Ok(());
    };
    let stack = &finding.object.allocation;
    let there = |f: &Frame| f.line == Some(allocation.line) && f.function == allocation.function;
    if stack.iter().any(there) {
        Ok(())
    } else {
        Err(format!("allocation is {stack:?}, not {allocation:?}"))
    }
}

/// Whether two of `wanted` are named as fields of the finding; one that is
/// touched rarely may not have been sampled.
pub fn names_fields(finding: &Finding, wanted: &[impl AsRef<str>]) -> Result<(), String> {
    let seen: Vec<&str> = finding
        .lines
        .iter()
        .flat_map(|l| &l.words)
        .filter_map(|w| w.field.as_deref())
        .collect();
    let named = |w: &&_| seen.iter().any(|s| s.ends_with(AsRef::<str>::as_ref(*w)));
    if wanted.iter().filter(named).count() >= wanted.len().min(2) {
        return Ok(());
    }
    let wanted: Vec<&str> = wanted.iter().map(AsRef::as_ref).collect();
    Err(format!("fields are {seen:?}, not {wanted:?}"))
}
