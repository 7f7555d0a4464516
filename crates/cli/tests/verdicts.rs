//! The table of expected verdicts, row by row: every workload, in both variants,
//! natively and under `detect`, with equal output. No false positive and no
//! miss at the significance threshold.
//!
//! How sure the answers are: a workload runs for about 0.4 s, in which each thread gives some 1,000
//! samples. A line that must be found takes at least a tenth of the threads' time (the ratios in
//! the table; [`MOST_RUNS_BELOW`] is for the exception), so about 100 samples are on it. The judge
//! needs 4 returns of a thread to the line among them; the probability of fewer than 4 among 100 is
//! below 1e-30 for independent samples, and below 1e-9 even if only a fifth of them decode. Whether the threads run at the same time
//! does depend on the machine. A run in which they did not (the program's CPU time is below 1.5
//! times its wall time) says nothing about sharing and is repeated, up to a bound. Then the row is
//! skipped, prints a notice and is counted. The test fails if half of the rows with something to
//! find are skipped.

mod support;

use std::process::Command;
use std::time::Duration;
use sunder_findings::{Finding, Findings, LatentOn, ObjectKind, Sharing, Standing};
use sunder_workloads::{
    Expected, Need, Position, Table, Variant, Verdict, Workload, default_out_dir,
};
use support::natively::natively;
use support::sunder;

/// How many runs of a row may pass without threads running side by side before it is skipped.
const MOST_BUSY_RUNS: u64 = 10;

/// How many runs may pass until each place where threads seldom are has been seen. Of 86 runs of
/// `lock_beside_data`, one lacked its place. Each of these runs must be right in all else.
const MOST_RUNS_FOR_SELDOM: usize = 5;

/// How many runs may pass in which threads that share a line never ran at the same time. With more
/// threads than CPUs the scheduler decides who does: of 110 runs of `survey_bins`, 6 were so.
const MOST_RUNS_IN_TURNS: usize = 8;

/// How many runs may pass until sharing that hardly costs anything (`costs = false`) reaches the
/// threshold. That of `reverse_index` took 0.8 to 8.0 % of the time in 25 runs, once less than 1 %,
/// and on another day 4.8 to 11.6 % in 12. What a transfer costs is the machine's: where none of
/// these runs reaches the threshold, one must find it below.
const MOST_RUNS_BELOW: usize = 5;

// One test, because workloads that run side by side do not share lines.
#[test]
fn every_row_of_the_table() {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    if cpus < 2 {
        println!("SKIP: one CPU: no line moves between cores");
        return;
    }
    let _first = support::targets::before_others();
    let mut table = Table::load().expect("the table is well-formed");
    let pairs = Table::load_pairs().expect("the table of pairs is well-formed");
    table.workloads.extend(pairs.workloads);
    let only = std::env::var("SUNDER_WORKLOAD").unwrap_or_default();
    let mut wrong = Vec::new();
    let (mut rows, mut must_find, mut skipped) = (0, 0, 0);
    for workload in table.workloads.iter().filter(|w| w.name.contains(&only)) {
        for variant in Variant::ALL {
            rows += 1;
            must_find += u32::from(workload.verdict(variant).must_find().next().is_some());
            match check(workload, variant) {
                Ok(Row::Checked) => {}
                Ok(Row::Skipped) => skipped += 1,
                Err(what) => wrong.push(format!("{} {}: {what}", workload.name, variant.name())),
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "{} of {rows} rows are wrong; rerun one with SUNDER_WORKLOAD=name cargo test -p sunder-cli \
         --test verdicts\n{}",
        wrong.len(),
        wrong.join("\n")
    );
    println!("{rows} rows, {skipped} of {must_find} with something to find skipped");
    assert!(
        skipped * 2 <= must_find,
        "{skipped} of {must_find} rows could not be checked, because their threads did not run side \
         by side: the machine is too busy for this test to show anything"
    );
}

/// How a row ended that was not wrong.
enum Row {
    Checked,
    /// Its threads did not run side by side.
    Skipped,
}

fn check(workload: &Workload, variant: Variant) -> Result<Row, String> {
    let program = workload
        .build(variant, &default_out_dir())
        .map_err(|e| e.to_string())?;
    let native = natively(Command::new(&program).args(workload.arguments()));
    let folder = tempfile::tempdir().map_err(|e| e.to_string())?;
    let file = folder.path().join("result.json");
    let mut busy_runs = 0;
    let mut judged = Vec::new();
    let mut runs_in_turns = 0;
    let mut runs_below = 0;
    let mut found_below = false;
    while busy_runs < MOST_BUSY_RUNS {
        // A process that keeps both CPUs busy may soon end.
        std::thread::sleep(Duration::from_millis(100 * busy_runs));
        let seen = sunder()
            // A thread that is held uses no processor: in a run of 0.3 seconds that is much.
            .args(["detect", "--quiet", "--no-measure", "-o"])
            .arg(&file)
            .arg("--")
            .arg(&program)
            .args(workload.arguments())
            .output()
            .map_err(|e| e.to_string())?;
        if seen.status.code() != native.status.code() {
            return Err(format!("status {} under detect", seen.status));
        }
        if workload.deterministic && seen.stdout != native.stdout {
            return Err("the output is not the native one".into());
        }
        if !seen.stderr.is_empty() {
            return Err(String::from_utf8_lossy(&seen.stderr).into_owned());
        }
        let findings = Findings::open(&file).map_err(|e| e.to_string())?;
        let must_find = workload.verdict(variant).must_find().next().is_some();
        // From a handful of samples the kind of sharing is a guess, which the report says.
        let guessed = significant(&findings).any(|f| !f.confirmed && f.sharing == Sharing::Mixed);
        if (must_find || guessed) && !side_by_side(&findings) {
            busy_runs += 1;
            continue;
        }
        let too_few_cpus = workload.threads > findings.machine.cpus;
        let again = too_few_cpus && runs_in_turns < MOST_RUNS_IN_TURNS;
        if must_find && again && in_turns(&findings) {
            runs_in_turns += 1;
            continue;
        }
        let below = below_threshold(workload, &findings);
        if must_find && below {
            found_below |= judge(workload, variant, &findings).is_ok();
            runs_below += 1;
            if runs_below <= MOST_RUNS_BELOW {
                continue;
            } else if found_below {
                return Ok(Row::Checked);
            }
        }
        judge(workload, variant, &findings)?;
        judged.push(findings);
        match seldom_unseen(workload.verdict(variant), &judged) {
            None => return Ok(Row::Checked),
            Some(place) if judged.len() >= MOST_RUNS_FOR_SELDOM => {
                return Err(missing(place));
            }
            Some(_) => {}
        }
    }
    println!(
        "SKIP: {} {}: its threads did not run side by side in {MOST_BUSY_RUNS} runs",
        workload.name,
        variant.name()
    );
    Ok(Row::Skipped)
}

/// Whether the program's threads ran at the same time for most of the run. The
/// CPU time must be the program's own: on a busy machine all its threads may
/// share one processor while `sunder` keeps the other busy.
fn side_by_side(findings: &Findings) -> bool {
    let cpu = findings.run.program_cpu_seconds.unwrap_or(0.0);
    cpu >= 1.5 * findings.run.seconds
}

/// Whether threads that share a line never ran at the same time, and that is what was found first.
fn in_turns(findings: &Findings) -> bool {
    let first = findings.findings.first();
    first.is_some_and(|f| matches!(f.latent_on, Some(LatentOn::MoreCpusThan(_))))
}

/// Whether nothing is at the threshold, in a workload whose sharing need not reach it.
fn below_threshold(workload: &Workload, findings: &Findings) -> bool {
    !workload.costs && significant(findings).next().is_none()
}

/// True sharing is in the table too; reports show it with --all only.
fn significant(findings: &Findings) -> impl Iterator<Item = &Finding> {
    let threshold = findings.run.threshold_percent;
    let all = findings.findings.iter();
    all.filter(move |f| match f.standing(threshold) {
        Standing::Significant => true,
        Standing::TrueSharing => f.cost_percent >= threshold,
        _ => false,
    })
}

fn judge(workload: &Workload, variant: Variant, findings: &Findings) -> Result<(), String> {
    let verdict = workload.verdict(variant);
    let significant: Vec<&Finding> = significant(findings).collect();
    for f in &significant {
        // The rate is over the time between the first and the last access, the timeline over the
        // whole run, which is somewhat longer.
        let mean = f.timeline.iter().sum::<f64>() / f.timeline.len().max(1) as f64;
        if !(0.3..1.05).contains(&(mean / f.interleavings_per_second)) {
            return Err(format!(
                "the timeline's mean is {mean}, the rate {}",
                f.interleavings_per_second
            ));
        }
    }
    // Memory without a name that holds records of one type is one object.
    let nameless = significant
        .iter()
        .filter(|f| f.object.kind == ObjectKind::Mapping);
    let mut subjects: Vec<String> = nameless.map(|f| f.subject()).collect();
    subjects.sort();
    if let Some(pair) = subjects.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(format!("{} is reported twice", pair[0]));
    }
    let to_find: Vec<&Finding> = if below_threshold(workload, findings) {
        findings.findings.iter().collect()
    } else {
        significant.clone()
    };
    let shown: Vec<String> = to_find.iter().map(|f| describe(f)).collect();
    for expected in verdict.findings.iter().filter(|e| e.need == Need::Must) {
        let mismatches: Vec<String> = to_find
            .iter()
            .filter_map(|f| mismatch(f, expected).err())
            .collect();
        if mismatches.len() == to_find.len() {
            return Err(format!(
                "missed {expected:?}\n    mismatches: {mismatches:#?}\n    reported: {shown:#?}"
            ));
        }
    }
    for finding in &significant {
        let named = verdict.findings.iter().any(|e| {
            let of_kind = || e.sharing.iter().any(|s| s.name() == kind_of(finding));
            mismatch(finding, e).is_ok()
                || (e.need == Need::May && same_object(finding, e) && of_kind())
        });
        if !named && finding.sharing != Sharing::True {
            return Err(format!("false positive: {}", describe(finding)));
        }
    }
    Ok(())
}

fn describe(f: &Finding) -> String {
    format!(
        "{:?} {} cost {:.1}% confirmed {} fields {:?} allocation {:?} sites {:?}",
        f.sharing,
        f.subject(),
        f.cost_percent,
        f.confirmed,
        fields(f),
        f.object
            .allocation
            .iter()
            .map(|a| format!("{}:{:?}", a.function, a.line))
            .collect::<Vec<_>>(),
        f.sites
            .iter()
            .take(6)
            .map(|s| format!("{}:{:?}", s.function, s.line))
            .collect::<Vec<_>>(),
    )
}

fn fields(finding: &Finding) -> Vec<&str> {
    let mut all: Vec<&str> = finding
        .lines
        .iter()
        .flat_map(|l| &l.words)
        .filter_map(|w| w.field.as_deref())
        .collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// The kind, as the table spells it.
const fn kind_of(finding: &Finding) -> &'static str {
    match finding.sharing {
        Sharing::False => "false",
        Sharing::True => "true",
        Sharing::Mixed => "mixed",
    }
}

fn same_object(finding: &Finding, expected: &Expected) -> bool {
    let object = &finding.object;
    let kind = match object.kind {
        ObjectKind::Heap => "heap",
        ObjectKind::Global => "global",
        ObjectKind::Tls => "tls",
        ObjectKind::Stack => "stack",
        ObjectKind::Mapping => "mapping",
        ObjectKind::Unknown => "unknown",
    };
    if kind != expected.object.name() {
        return false;
    }
    // The name of a heap object is that of a pointer to it, and there may be
    // several; its allocation identifies it.
    match (&expected.name, kind) {
        // Either of two neighbours may be the expected object.
        (Some(name), "global" | "tls" | "stack") => [Some(object), finding.neighbour.as_ref()]
            .into_iter()
            .flatten()
            .filter_map(|o| o.name.as_deref())
            .any(|n| n.ends_with(name.as_str())),
        _ => true,
    }
}

/// Whether a field's path leads to (an element of) `wanted`.
fn names_field(path: &str, wanted: &str) -> bool {
    let without_index = path.rsplit_once('[').map_or(path, |(array, _)| array);
    path.ends_with(wanted) || without_index.ends_with(wanted)
}

/// Why `finding` is not the expected one.
fn mismatch(finding: &Finding, expected: &Expected) -> Result<(), String> {
    let sharing = kind_of(finding);
    if !expected.sharing.iter().any(|s| s.name() == sharing) {
        return Err(format!("sharing is {sharing}"));
    }
    if !same_object(finding, expected) {
        return Err(format!("object is {}", finding.subject()));
    }
    let type_name = finding.object.type_name.as_deref().unwrap_or("");
    if let Some(wanted) = &expected.type_name
        && !type_name.contains(wanted.as_str())
    {
        return Err(format!("type is {type_name}"));
    }
    if expected.size.is_some() && finding.object.size != expected.size {
        return Err(format!("size is {:?}", finding.object.size));
    }
    let seen = fields(finding);
    let found = expected
        .fields
        .iter()
        .filter(|wanted| seen.iter().any(|f| names_field(f, wanted)))
        .count();
    // A field that is touched rarely may not have been sampled.
    if found < expected.fields.len().min(2) {
        return Err(format!("fields are {seen:?}"));
    }
    if let Some(allocation) = &expected.allocation {
        let there = finding
            .object
            .allocation
            .iter()
            .chain(finding.neighbour.iter().flat_map(|n| &n.allocation))
            .any(|f| f.line == Some(allocation.line) && f.function.contains(&allocation.function));
        if !there {
            return Err(format!("allocation is {:?}", finding.object.allocation));
        }
    }
    let often = expected.touched_at.iter().filter(|place| !place.seldom);
    match often.into_iter().find(|place| !touches(finding, place)) {
        Some(place) => Err(missing(place)),
        None => Ok(()),
    }
}

fn touches(finding: &Finding, place: &Position) -> bool {
    finding.sites.iter().any(|s| s.line == Some(place.line))
}

fn missing(place: &Position) -> String {
    format!(
        "line {} ({}) is not among the sites",
        place.line, place.function
    )
}

/// A place where threads seldom are and that no run has shown so far.
fn seldom_unseen<'a>(verdict: &'a Verdict, runs: &[Findings]) -> Option<&'a Position> {
    let expected = verdict.must_find();
    let mut seldom = expected.flat_map(|e| e.touched_at.iter().filter(|place| place.seldom));
    let shown = |place: &Position| {
        let mut all = runs.iter().flat_map(|run| &run.findings);
        all.any(|finding| touches(finding, place))
    };
    seldom.find(|place| !shown(place))
}
