//! Which findings match, and how two results compare. Pure.
//!
//! The definition of a match was fixed before any figure was seen. Two findings match if they have
//! an object in common. Two objects are the same if they are of one kind and have
//! - heap objects: the same function and source line of the allocation, in the innermost frame of
//!   the program's own: addresses differ between builds, and types may be unknown in one of them;
//! - variables: the same name;
//! - others, and those without these: the same kind and the same name, if any.
//!
//! One object is enough, because either of two neighbours on a line may come first, and the
//! neighbour depends on the layout of a build. Several objects with the same key (blocks from one
//! loop, say) count once.
//!
//! A trace has a truth for each order in which its threads may have run. What is significant in both
//! orders that are replayed is certain; what is significant in one of them depends on the machine,
//! so it is neither missed nor a false alarm.

use std::collections::BTreeSet;
use sunder_findings::{Finding, Findings, Object, ObjectKind, Sharing, Standing, file_name};

/// All findings of a result about the same objects.
#[derive(Clone, Debug, PartialEq)]
pub struct Subject {
    /// The keys of its objects.
    pub keys: BTreeSet<String>,
    /// The kind of sharing of its costliest finding.
    pub sharing: Sharing,
    /// The standing of that finding in reports.
    pub standing: Standing,
    /// The cost of its false sharing, in percent of the time of the threads that take part.
    pub cost: f64,
}

/// The subjects of a result, the costliest first, without latent ones.
pub fn subjects(result: &Findings, threshold: f64) -> Vec<Subject> {
    let mut all: Vec<Subject> = Vec::new();
    for finding in result.findings.iter().filter(|f| !f.latent) {
        let mut new = Subject {
            keys: keys(finding),
            sharing: finding.sharing,
            standing: finding.standing(threshold),
            cost: finding.false_cost_percent(),
        };
        // An object in common with several of them makes them one subject.
        let (same, others): (Vec<_>, Vec<_>) = all.into_iter().partition(|s| s.is_about(&new));
        all = others;
        for old in same {
            new = old.joined(new);
        }
        all.push(new);
    }
    all.sort_by(|a, b| b.cost.total_cmp(&a.cost));
    all
}

impl Subject {
    /// Whether the two have an object in common.
    pub fn is_about(&self, other: &Self) -> bool {
        !self.keys.is_disjoint(&other.keys)
    }

    fn joined(mut self, other: Self) -> Self {
        let rank = |s: &Self| (s.standing == Standing::Significant, s.cost);
        if rank(&other) > rank(&self) {
            self.sharing = other.sharing;
            self.standing = other.standing;
            self.cost = other.cost;
        }
        self.keys.extend(other.keys);
        self
    }

    /// Whether a report shows it among the first: false or mixed sharing above the threshold.
    pub fn is_significant(&self) -> bool {
        self.standing == Standing::Significant
    }

    fn without_cost(&self) -> Self {
        Self {
            standing: Standing::BelowThreshold,
            cost: 0.0,
            ..self.clone()
        }
    }

    /// A short name.
    pub fn name(&self) -> String {
        let keys: Vec<&str> = self.keys.iter().map(String::as_str).collect();
        keys.join(" and ")
    }
}

fn keys(finding: &Finding) -> BTreeSet<String> {
    let both = [Some(&finding.object), finding.neighbour.as_ref()];
    both.into_iter().flatten().map(key).collect()
}

fn key(object: &Object) -> String {
    let kind = object.kind.words();
    let name = object.name.as_deref().unwrap_or("(no name)");
    if object.kind != ObjectKind::Heap {
        return format!("{kind} {name}");
    }
    match object.allocation_site() {
        Some(site) => {
            let file = site.file.as_deref().map_or("", file_name);
            format!("{kind} {} {file}:{}", site.function, site.line.unwrap_or(0))
        }
        None => format!("{kind} {name}"),
    }
}

/// What a replayed trace says of one subject.
#[derive(Clone, Debug)]
pub struct Truth {
    /// In the order in which the accesses were recorded. Without findings there, the other order's,
    /// with a cost of 0.
    pub recorded: Subject,
    /// With a processor for each thread, all in step; in the same way.
    pub parallel: Subject,
}

impl Truth {
    fn significant_in(&self) -> usize {
        let both = [&self.recorded, &self.parallel];
        both.into_iter().filter(|s| s.is_significant()).count()
    }

    fn is_about(&self, other: &Subject) -> bool {
        self.recorded.is_about(other) || self.parallel.is_about(other)
    }
}

/// The truth about everything that is shared in one of two replays of a trace, the costliest in
/// step first.
pub fn truths(recorded: &[Subject], parallel: &[Subject]) -> Vec<Truth> {
    let mut all: Vec<Truth> = parallel
        .iter()
        .map(|of| Truth {
            recorded: best(of, recorded).map_or_else(|| of.without_cost(), Clone::clone),
            parallel: of.clone(),
        })
        .collect();
    let others = recorded.iter().filter(|s| best(s, parallel).is_none());
    all.extend(others.map(|of| Truth {
        recorded: of.clone(),
        parallel: of.without_cost(),
    }));
    all
}

/// The outcome for one subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    /// Significant in the detector's result and in both orders of the trace.
    Found,
    /// Significant in the detector's result and in one order of the trace.
    FoundOfOneOrder,
    /// Significant in one order of the trace only.
    LeftOutOfOneOrder,
    /// Significant in both orders of the trace only; with the detector's result instead.
    Missed(Instead),
    /// Significant in the detector's result only; with the trace's instead.
    FalseAlarm(Instead),
}

/// The other result's finding of the same subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Instead {
    /// False or mixed sharing that costs less than the threshold.
    BelowThreshold,
    /// True sharing.
    TrueSharing,
    /// No finding.
    Nothing,
}

impl Outcome {
    /// In words, for tables.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Found => "found",
            Self::FoundOfOneOrder => "found: significant in one order of the trace",
            Self::LeftOutOfOneOrder => "left out: significant in one order of the trace",
            Self::Missed(Instead::BelowThreshold) => "missed: below the threshold",
            Self::Missed(Instead::TrueSharing) => "missed: told as true sharing",
            Self::Missed(Instead::Nothing) => "missed: not seen",
            Self::FalseAlarm(Instead::BelowThreshold) => {
                "too much: below the threshold in the trace"
            }
            Self::FalseAlarm(Instead::TrueSharing) => "too much: true sharing in the trace",
            Self::FalseAlarm(Instead::Nothing) => "too much: not shared in the trace",
        }
    }
}

/// One subject in both results.
#[derive(Clone, Debug)]
pub struct Match {
    /// The outcome for it.
    pub outcome: Outcome,
    /// The subject in the truth, if it is there.
    pub truth: Option<Truth>,
    /// The subject in the detector's result, if it is there.
    pub detected: Option<Subject>,
}

impl Match {
    /// A short name of the subject.
    pub fn name(&self) -> String {
        let truth = self.truth.as_ref().map(|t| &t.parallel);
        let any = truth.or(self.detected.as_ref());
        any.map_or_else(String::new, Subject::name)
    }
}

/// Compares the detector's subjects with the truth. Subjects that are significant in neither are
/// left out.
pub fn compare(truth: &[Truth], detected: &[Subject]) -> Vec<Match> {
    let mut all = Vec::new();
    for of_truth in truth.iter().filter(|t| t.significant_in() > 0) {
        let of_both = best(&of_truth.parallel, detected);
        let found = of_both.or_else(|| best(&of_truth.recorded, detected));
        let seen = found.is_some_and(Subject::is_significant);
        let outcome = match (of_truth.significant_in(), seen) {
            (1, true) => Outcome::FoundOfOneOrder,
            (1, false) => Outcome::LeftOutOfOneOrder,
            (_, true) => Outcome::Found,
            (_, false) => Outcome::Missed(instead(found)),
        };
        all.push(Match {
            outcome,
            truth: Some(of_truth.clone()),
            detected: found.cloned(),
        });
    }
    for seen in detected.iter().filter(|s| s.is_significant()) {
        let about = || truth.iter().filter(|t| t.is_about(seen));
        if about().any(|t| t.significant_in() > 0) {
            continue;
        }
        let known = about().next();
        all.push(Match {
            outcome: Outcome::FalseAlarm(instead(known.map(|t| &t.parallel))),
            truth: known.cloned(),
            detected: Some(seen.clone()),
        });
    }
    all
}

/// The matching subject: a significant one if there is one, else the costliest.
fn best<'a>(wanted: &Subject, among: &'a [Subject]) -> Option<&'a Subject> {
    let mut about = among.iter().filter(|s| s.is_about(wanted));
    let first = about.clone().next();
    about.find(|s| s.is_significant()).or(first)
}

fn instead(other: Option<&Subject>) -> Instead {
    match other.map(|s| s.sharing) {
        None => Instead::Nothing,
        Some(Sharing::True) => Instead::TrueSharing,
        Some(_) => Instead::BelowThreshold,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sunder_findings::Frame;

    fn global(name: &str) -> Object {
        Object {
            kind: ObjectKind::Global,
            name: Some(name.into()),
            ..Object::default()
        }
    }

    fn heap(function: &str, line: u32) -> Object {
        Object {
            kind: ObjectKind::Heap,
            allocation: vec![Frame {
                function: function.into(),
                file: Some("/home/user/app.c".into()),
                line: Some(line),
                ..Frame::default()
            }],
            ..Object::default()
        }
    }

    fn finding(object: Object, sharing: Sharing, cost: f64) -> Finding {
        Finding {
            object,
            sharing,
            cost_percent: cost,
            false_share: 1.0,
            ..Finding::default()
        }
    }

    fn result(findings: Vec<Finding>) -> Vec<Subject> {
        let all = Findings {
            findings,
            ..Findings::default()
        };
        subjects(&all, 1.0)
    }

    fn outcomes(truth: Vec<Finding>, detected: Vec<Finding>) -> Vec<Outcome> {
        outcomes_of(truth.clone(), truth, detected)
    }

    fn outcomes_of(
        recorded: Vec<Finding>,
        parallel: Vec<Finding>,
        detected: Vec<Finding>,
    ) -> Vec<Outcome> {
        let truth = truths(&result(recorded), &result(parallel));
        let all = compare(&truth, &result(detected));
        all.iter().map(|m| m.outcome).collect()
    }

    /// A lock of the program's own orders its data in the recorded order only, for example.
    #[test]
    fn what_one_order_has_is_neither_missed_nor_a_false_alarm() {
        let of = |sharing, cost| vec![finding(global("a"), sharing, cost)];
        let sure = || of(Sharing::False, 50.0);
        for other in [vec![], of(Sharing::True, 50.0), of(Sharing::False, 0.5)] {
            for (recorded, parallel) in [(sure(), other.clone()), (other, sure())] {
                let outcomes = |seen| outcomes_of(recorded.clone(), parallel.clone(), seen);
                assert_eq!(outcomes(sure()), [Outcome::FoundOfOneOrder]);
                assert_eq!(outcomes(vec![]), [Outcome::LeftOutOfOneOrder]);
            }
        }
        let parts = vec![
            finding(global("a"), Sharing::False, 50.0),
            finding(global("b"), Sharing::False, 50.0),
        ];
        let got = outcomes_of(parts.clone(), sure(), parts);
        assert_eq!(got, [Outcome::Found, Outcome::FoundOfOneOrder]);
    }

    #[test]
    fn either_of_two_neighbours_may_come_first() {
        let mut one = finding(global("a"), Sharing::False, 50.0);
        one.neighbour = Some(global("b"));
        let two = finding(global("b"), Sharing::Mixed, 9.0);
        assert_eq!(outcomes(vec![one], vec![two]), [Outcome::Found]);
    }

    #[test]
    fn heap_objects_are_distinguished_by_their_call_site() {
        let of = |line| finding(heap("main", line), Sharing::False, 50.0);
        assert_eq!(outcomes(vec![of(7)], vec![of(7)]), [Outcome::Found]);
        assert_eq!(
            outcomes(vec![of(7)], vec![of(8)]),
            [
                Outcome::Missed(Instead::Nothing),
                Outcome::FalseAlarm(Instead::Nothing)
            ]
        );
    }

    #[test]
    fn blocks_of_one_call_site_count_once_with_the_highest_cost() {
        let of = |sharing, cost| finding(heap("main", 7), sharing, cost);
        let all = result(vec![
            of(Sharing::True, 90.0),
            of(Sharing::False, 2.0),
            of(Sharing::Mixed, 8.0),
        ]);
        assert_eq!(all.len(), 1);
        assert_eq!((all[0].sharing, all[0].cost), (Sharing::Mixed, 8.0));
    }

    #[test]
    fn a_pair_makes_its_two_objects_one_subject() {
        let mut pair = finding(global("a"), Sharing::False, 5.0);
        pair.neighbour = Some(global("b"));
        let all = result(vec![
            finding(global("a"), Sharing::False, 1.0),
            finding(global("b"), Sharing::False, 2.0),
            pair,
        ]);
        assert_eq!(all.len(), 1);
        assert_eq!(
            all[0].name(),
            format!("{} and {}", key(&global("a")), key(&global("b")))
        );
    }

    #[test]
    fn a_disagreement_names_the_other_results_verdict() {
        let of = |sharing, cost| vec![finding(global("a"), sharing, cost)];
        let sure = || of(Sharing::False, 50.0);
        let missed = |instead| vec![Outcome::Missed(instead)];
        let alarm = |instead| vec![Outcome::FalseAlarm(instead)];
        let below = || of(Sharing::False, 0.5);
        let truly = || of(Sharing::True, 50.0);
        assert_eq!(outcomes(sure(), below()), missed(Instead::BelowThreshold));
        assert_eq!(outcomes(sure(), truly()), missed(Instead::TrueSharing));
        assert_eq!(outcomes(sure(), vec![]), missed(Instead::Nothing));
        assert_eq!(outcomes(below(), sure()), alarm(Instead::BelowThreshold));
        assert_eq!(outcomes(truly(), sure()), alarm(Instead::TrueSharing));
        assert_eq!(outcomes(vec![], sure()), alarm(Instead::Nothing));
        assert_eq!(outcomes(below(), truly()), []);
    }

    #[test]
    fn latent_findings_are_neither_truth_nor_alarm() {
        let mut latent = finding(global("a"), Sharing::False, 50.0);
        latent.latent = true;
        assert_eq!(outcomes(vec![], vec![latent]), []);
    }
}
