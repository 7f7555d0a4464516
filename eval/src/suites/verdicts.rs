//! What a suite says of its tests, read from what it prints: one verdict for each test, in the
//! suite's own words. Must not count on the order of tests, nor on times.

use super::kinds::Kind;
use crate::limited::Ran;
use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

/// The verdict on each test. A test that is reported twice has the worse word last.
pub type Verdicts = BTreeMap<String, String>;

/// A run of a unit.
pub struct Seen {
    /// Its status in words.
    pub status: String,
    /// Whether it ended by itself.
    pub ends: bool,
    pub verdicts: Verdicts,
    /// Processes that outlived it.
    left: String,
    output: String,
}

impl Seen {
    pub fn of(kind: Kind, ran: Ran) -> Self {
        let mut output = String::from_utf8_lossy(&ran.stdout).into_owned();
        // Go and CPython's runner write verdicts to one stream, their tests to both.
        output.push('\n');
        output.push_str(&ran.stderr);
        let mut verdicts = match kind {
            Kind::Python => of_unittest(&output),
            Kind::Go => of_go(&output),
            Kind::Redis => of_redis(&output),
            Kind::Memcached => of_tap(&output),
            Kind::Java => of_jcstress(&output),
            Kind::Node => Verdicts::new(),
        };
        if verdicts.is_empty() {
            let good = ran.status.is_some_and(|status| status.success());
            let verdict = if good { "ok" } else { "failed" };
            verdicts.insert("as a whole".to_owned(), verdict.to_owned());
        }
        Self {
            status: ran.status.map_or_else(|| "hung".to_owned(), shown),
            ends: ran.status.is_some(),
            verdicts,
            left: ran.left,
            output,
        }
    }

    /// The verdicts that two native runs agree in.
    pub fn steady(&self, other: &Self) -> Verdicts {
        let all = self.verdicts.iter();
        all.filter(|(test, verdict)| other.verdicts.get(*test) == Some(verdict))
            .map(|(test, verdict)| (test.clone(), verdict.clone()))
            .collect()
    }

    /// What of this run is not as in a native one, a sentence each.
    pub fn differences(&self, native: &Self, steady: &Verdicts) -> Vec<String> {
        let mut all = Vec::new();
        if self.status != native.status {
            all.push(format!(
                "status: {} instead of {}",
                self.status, native.status
            ));
        }
        if names(&self.left) != names(&native.left) && !self.left.is_empty() {
            all.push(format!("left behind: {}", self.left));
        }
        for (test, verdict) in steady {
            match self.verdicts.get(test) {
                Some(seen) if seen == verdict => {}
                Some(seen) => all.push(format!("{test}: {seen} instead of {verdict}")),
                None => all.push(format!("{test}: nothing instead of {verdict}")),
            }
        }
        all
    }

    /// The end of what it printed.
    pub fn tail(&self) -> String {
        const LINES: usize = 60;
        let lines: Vec<&str> = self.output.lines().collect();
        lines[lines.len().saturating_sub(LINES)..].join("\n")
    }
}

/// The names of the processes that outlived a run. A line also says where each waits, which differs
/// from run to run.
fn names(left: &str) -> Vec<&str> {
    let mut all: Vec<&str> = left
        .lines()
        .filter_map(|line| line.split_whitespace().nth(1))
        .collect();
    all.sort_unstable();
    all
}

/// A status as a shell gives it, which is also how Sunder ends for a program that died by a signal.
fn shown(status: ExitStatus) -> String {
    let number = status.code().or(status.signal().map(|signal| 128 + signal));
    number.map_or_else(|| status.to_string(), |number| number.to_string())
}

/// Lines `test_name (place) ... verdict`; a test with a description has it on a line of its own, with
/// the verdict, and what a test prints may stand between.
fn of_unittest(output: &str) -> Verdicts {
    let mut verdicts = Verdicts::new();
    let mut last = None;
    for line in output.lines() {
        let name = line.split(" ... ").next().unwrap_or_default();
        if line.starts_with("test_") && name.contains(" (") {
            let end = name.find(')').map_or(name.len(), |end| end + 1);
            last = Some(name[..end].to_owned());
        }
        let verdict = line.rsplit(" ... ").next().unwrap_or_default();
        let words = [
            "ok",
            "FAIL",
            "ERROR",
            "skipped",
            "expected failure",
            "unexpected success",
        ];
        let is_one = words.iter().any(|word| verdict.starts_with(word));
        if let (true, Some(name)) = (is_one, &last) {
            // The reason of a skip may have numbers in it.
            let verdict = if verdict.starts_with("skipped") {
                "skipped"
            } else {
                verdict
            };
            verdicts.insert(name.clone(), verdict.to_owned());
        }
    }
    verdicts
}

/// Lines `--- PASS: TestName (0.01s)`, indented for parts of a test.
fn of_go(output: &str) -> Verdicts {
    let one = |line: &str| {
        let (verdict, rest) = line.trim_start().strip_prefix("--- ")?.split_once(": ")?;
        let name = rest.split(" (").next()?;
        Some((name.to_owned(), verdict.to_owned()))
    };
    output.lines().filter_map(one).collect()
}

/// Lines `[ok]: name (3 ms)`.
fn of_redis(output: &str) -> Verdicts {
    let one = |line: &str| {
        let (verdict, rest) = line.strip_prefix('[')?.split_once("]: ")?;
        let known = ["ok", "err", "exception", "ignore"];
        let name = rest.rsplit_once(" (").map_or(rest, |(name, _)| name);
        known
            .contains(&verdict)
            .then(|| (name.to_owned(), verdict.to_owned()))
    };
    output.lines().filter_map(one).collect()
}

/// Lines `.......... [OK] package.Class` of the final results; checks of the machine before that have
/// such lines with dashes.
fn of_jcstress(output: &str) -> Verdicts {
    let mut verdicts = Verdicts::new();
    for line in output.lines() {
        let rest = line.trim_start().strip_prefix(".......... [");
        if let Some((verdict, test)) = rest.and_then(|rest| rest.split_once("] ")) {
            verdicts.insert(test.trim().to_owned(), verdict.to_owned());
        }
    }
    verdicts
}

/// Lines `ok 3 - name` and `not ok 4 - name` of the Test Anything Protocol.
fn of_tap(output: &str) -> Verdicts {
    let one = |line: &str| {
        let (verdict, rest) = match line.strip_prefix("not ok ") {
            Some(rest) => ("not ok", rest),
            None => ("ok", line.strip_prefix("ok ")?),
        };
        // Names may have times in them; the number is enough.
        let number = rest.split_whitespace().next()?;
        Some((number.to_owned(), verdict.to_owned()))
    };
    output.lines().filter_map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is(verdicts: &Verdicts, wanted: &[(&str, &str)]) {
        let seen: Vec<(&str, &str)> = verdicts
            .iter()
            .map(|(a, b)| (a.as_str(), b.as_str()))
            .collect();
        assert_eq!(seen, wanted);
    }

    #[test]
    fn verdicts_of_unittest_are_read() {
        let output = "\
test_a (test.test_x.A.test_a) ... ok
test_b (test.test_x.A.test_b)
What it does. ... skipped 'not here'
test_c (test.test_x.A.test_c) ... something it prints
ok
test_d (test.test_x.A.test_d) ... FAIL
okay, this is no verdict of a test
";
        is(
            &of_unittest(output.split("okay").next().expect("text")),
            &[
                ("test_a (test.test_x.A.test_a)", "ok"),
                ("test_b (test.test_x.A.test_b)", "skipped"),
                ("test_c (test.test_x.A.test_c)", "ok"),
                ("test_d (test.test_x.A.test_d)", "FAIL"),
            ],
        );
    }

    #[test]
    fn verdicts_of_go_are_read() {
        let output =
            "=== RUN   TestA\n--- PASS: TestA (0.00s)\n    --- FAIL: TestA/part (1.20s)\nPASS\n";
        is(&of_go(output), &[("TestA", "PASS"), ("TestA/part", "FAIL")]);
    }

    #[test]
    fn verdicts_of_redis_are_read() {
        let output = "[ok]: LPUSH (again) (3 ms)\n[err]: Two in tests/a.tcl\n[1/1 done]: unit/a (1 seconds)\n";
        is(
            &of_redis(output),
            &[("LPUSH (again)", "ok"), ("Two in tests/a.tcl", "err")],
        );
    }

    #[test]
    fn processes_that_outlive_a_run_are_known_by_name() {
        let first =
            "/proc/7/task/7 sleep state S waits in a call 230\n/proc/9/task/9 cat state R\n";
        let second = "/proc/12/task/12 cat state S\n/proc/13/task/13 sleep state S\n";
        assert_eq!(names(first), names(second));
        assert_ne!(names(first), names("/proc/12/task/12 cat state S\n"));
    }

    #[test]
    fn verdicts_of_jcstress_are_read() {
        let output = "----- [OK] Checking for C2 availability\n  Failed tests:\n\n\
                      .......... [FAILED] a.B.Racy\n\n.......... [OK] a.B.Sync\n";
        is(
            &of_jcstress(output),
            &[("a.B.Racy", "FAILED"), ("a.B.Sync", "OK")],
        );
    }

    #[test]
    fn verdicts_of_the_test_anything_protocol_are_read() {
        let output = "1..3\nok 1 - first\nnot ok 2 - second took 3 s\nok 3\n# ok 4\n";
        is(
            &of_tap(output),
            &[("1", "ok"), ("2", "not ok"), ("3", "ok")],
        );
    }

    #[test]
    fn what_is_missing_or_other_is_told() {
        let seen = |status: &str, all: &[(&str, &str)]| Seen {
            status: status.to_owned(),
            ends: true,
            verdicts: all
                .iter()
                .map(|(a, b)| ((*a).to_owned(), (*b).to_owned()))
                .collect(),
            left: String::new(),
            output: String::new(),
        };
        let native = seen("0", &[("a", "ok"), ("b", "ok"), ("c", "ok")]);
        let second = seen("0", &[("a", "ok"), ("b", "ok"), ("c", "FAIL")]);
        let steady = native.steady(&second);
        assert_eq!(steady.len(), 2);
        let under = seen("1", &[("a", "FAIL"), ("c", "FAIL")]);
        assert_eq!(
            under.differences(&native, &steady),
            [
                "status: 1 instead of 0",
                "a: FAIL instead of ok",
                "b: nothing instead of ok"
            ]
        );
        assert!(native.differences(&second, &steady).is_empty());
    }
}
