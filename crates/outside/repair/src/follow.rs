//! A run under a remedy in which the processes that the program starts are repaired too (`descendants`), and
//! what is said of them. Used by [`crate::run`], and by `cure`, which has more remedies for the program itself.
//! It must not decide what is done in any process.

pub use crate::descendants::How;
use crate::descendants::{AllFollowed, Descendants};
use anyhow::{Context, Result};
use std::process::ExitStatus;
use std::time::Duration;
use sunder_access::ProcessId;
use sunder_findings::{Findings, Limit};
use sunder_live::{Live, LiveRemedy, Loaded, Observation, Opened, observe_with};
use sunder_observe::ObserveError;
use sunder_observe::launch::Child;
use sunder_observe::watch::Budget;
use sunder_pipeline::Wanted;

/// As [`observe_with`]; with `follow`, the processes that the program starts are repaired until it has ended.
/// The last part of the answer says what became of them.
///
/// # Errors
/// As [`observe_with`].
pub fn observe_all(
    what: &Observation,
    remedy: &mut dyn LiveRemedy,
    follow: Option<How>,
) -> Result<(Findings, ExitStatus, Option<AllFollowed>)> {
    let Some(how) = follow else {
        let (findings, exit) = observe_with(what, remedy)?;
        return Ok((findings, exit, None));
    };
    let mut following = Following {
        remedy,
        how,
        descendants: None,
    };
    let (mut findings, exit) = observe_with(what, &mut following)?;
    let left_out = |limit: &Limit| matches!(limit, Limit::ProcessesLeftOut);
    findings.limits.retain(|limit| !left_out(limit));
    let followed = following.descendants.map(Descendants::end);
    Ok((findings, exit, Some(followed.unwrap_or_default())))
}

/// What a remedy's lines begin with, if it found nothing to do in the program itself.
const NOTHING: &str = "nothing to ";
/// What a line about the source begins with. It is the same for all processes of one program.
const IN_THE_SOURCE: &str = "to mend ";

/// Adds to the lines about the program itself what became of the processes that it started.
pub fn tell(lines: &mut Vec<String>, all: &AllFollowed) {
    if all.told.is_empty() && all.nothing == 0 && all.refused.is_empty() {
        lines.push(
            "no process that the program started computed with several threads for long enough to be \
             looked at"
                .into(),
        );
        return;
    }
    if !all.told.is_empty() {
        lines.retain(|line| !line.starts_with(NOTHING));
    }
    for one in &all.told {
        for line in &one.lines {
            let line = match line.starts_with(IN_THE_SOURCE) {
                true => line.clone(),
                false => format!("{} (process {}): {line}", one.name, one.process),
            };
            if !lines.contains(&line) {
                lines.push(line);
            }
        }
    }
    let processes = |number: usize| match (number, all.told.is_empty()) {
        (1, true) => "1 process".to_owned(),
        (1, false) => "1 process more".to_owned(),
        (_, true) => format!("{number} processes"),
        (_, false) => format!("{number} processes more"),
    };
    if all.more > 0 {
        let more = processes(all.more);
        lines.push(format!("something was found in {more} as well"));
    }
    for (refused, (first, count)) in &all.refused {
        let (name, why) = (&refused.name, &refused.why);
        lines.push(match count {
            1 => format!("left {name} (process {first}) alone: {why}"),
            _ => format!("left {count} processes of {name} alone: {why}"),
        });
    }
    if all.nothing > 0 {
        let nothing = processes(all.nothing);
        lines.push(format!(
            "nothing to repair in {nothing} that the program started"
        ));
    }
}

/// A remedy for the program itself, and what repairs the processes that it starts.
struct Following<'a> {
    remedy: &'a mut dyn LiveRemedy,
    how: How,
    descendants: Option<Descendants>,
}

impl LiveRemedy for Following<'_> {
    fn load(&self) -> Option<Loaded> {
        self.remedy.load()
    }

    fn observer(&self) -> Option<Opened> {
        self.remedy.observer()
    }

    fn waits_for_samples(&self) -> bool {
        self.remedy.waits_for_samples()
    }

    fn can_follow(&self) -> bool {
        self.remedy.can_follow()
    }

    fn budget(&self, share: f64) -> Budget {
        self.remedy.budget(share)
    }

    fn wanted(&self) -> Wanted {
        self.remedy.wanted()
    }

    fn begins(&mut self, process: ProcessId) -> Result<()> {
        self.remedy.begins(process)?;
        let descendants = Descendants::of(process, self.how);
        let descendants = descendants.context("cannot follow what the program starts")?;
        self.descendants = Some(descendants);
        Ok(())
    }

    fn step(&mut self, live: &mut Live) {
        self.remedy.step(live);
    }

    fn ended(&mut self, live: &mut Live) {
        self.remedy.ended(live);
    }

    fn measured(&self) -> Option<String> {
        self.remedy.measured()
    }

    fn complete(&self, result: &mut Findings) {
        self.remedy.complete(result);
    }

    fn limits(&self) -> Vec<Limit> {
        self.remedy.limits()
    }

    fn patience(&self) -> Option<Duration> {
        self.remedy.patience()
    }

    fn collect(&mut self, child: &mut Child) -> Result<Option<ExitStatus>, ObserveError> {
        self.remedy.collect(child)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::descendants::{Followed, Refused};

    fn followed(nothing: usize, lines: &[&str]) -> AllFollowed {
        let told = (!lines.is_empty()).then(|| Followed {
            process: ProcessId(7),
            name: "bench".into(),
            lines: lines.iter().map(|&line| line.to_owned()).collect(),
        });
        AllFollowed {
            nothing,
            told: told.into_iter().collect(),
            ..AllFollowed::default()
        }
    }

    fn told(of_the_program: &str, all: &AllFollowed) -> Vec<String> {
        let mut lines = vec![of_the_program.to_owned()];
        tell(&mut lines, all);
        lines
    }

    #[test]
    fn what_was_done_in_another_process_is_said_with_its_name() {
        let found = ["moved `a`", "to mend `a` in the source: pad it"];
        assert_eq!(
            told("nothing to cure: a reason", &followed(0, &found)),
            ["bench (process 7): moved `a`", found[1]]
        );
        assert_eq!(
            told("moved `b`", &followed(2, &found[..1])),
            [
                "moved `b`",
                "bench (process 7): moved `a`",
                "nothing to repair in 2 processes more that the program started"
            ]
        );
    }

    #[test]
    fn the_same_advice_for_many_processes_is_given_once() {
        let mut all = followed(0, &["moved `a`", "to mend `a` in the source: pad it"]);
        let mut again = all.told[0].clone();
        again.process = ProcessId(8);
        all.told.push(again);
        all.more = 3;
        let told = told("nothing to cure: a reason", &all);
        assert_eq!(
            told,
            [
                "bench (process 7): moved `a`",
                "to mend `a` in the source: pad it",
                "bench (process 8): moved `a`",
                "something was found in 3 processes more as well"
            ]
        );
    }

    #[test]
    fn what_was_left_alone_is_said_once_for_each_reason() {
        let mut all = followed(0, &[]);
        let refused = |name: &str, why: &str| Refused {
            name: name.into(),
            why: why.into(),
        };
        let (java, go) = (
            refused("java", "it makes code"),
            refused("go", "it is static"),
        );
        all.refused.insert(java, (ProcessId(7), 1));
        all.refused.insert(go, (ProcessId(9), 12));
        let nothing = "nothing to repair: a reason";
        assert_eq!(
            told(nothing, &all),
            [
                nothing,
                "left 12 processes of go alone: it is static",
                "left java (process 7) alone: it makes code"
            ]
        );
    }

    #[test]
    fn that_nothing_was_found_in_others_is_said_too() {
        let nothing = "nothing to repair: a reason";
        assert_eq!(
            told(nothing, &followed(1, &[])),
            [
                nothing,
                "nothing to repair in 1 process that the program started"
            ]
        );
        let none = told(nothing, &followed(0, &[]));
        assert!(
            none[1].starts_with("no process that the program started"),
            "{none:?}"
        );
    }
}
