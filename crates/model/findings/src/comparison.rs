//! The changes between two results, for `sunder diff` and for checks on pull requests. Pure.
//! Sampling noise is told from change by one documented band.

use crate::fingerprint::{fingerprint, fingerprint_with_fields};
use crate::likeness;
use crate::object::Location;
use crate::schema::{Finding, Findings};
use crate::sharing::Sharing;
use crate::verdict::Answer;
#[cfg(feature = "schema")]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A cost must change by more than this factor to count, and by more than
/// [`NOISE_PERCENT`].
///
/// The factor is a choice, not a measurement. Costs are estimated from samples,
/// and the scheduler decides how long two threads run side by side. A change by half is also
/// what a person would look at.
pub const NOISE_FACTOR: f64 = 1.5;
/// A cost must change by more than this many percentage points to count, and by more than
/// [`NOISE_FACTOR`]. A finding that appears or goes away counts as 0 in the other result.
pub const NOISE_PERCENT: f64 = 2.0;

/// The difference between two results.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct Comparison {
    /// Always `sunder-comparison`.
    pub schema: String,
    /// The version of the comparison's format.
    pub version: u32,
    /// See [`NOISE_FACTOR`].
    pub noise_factor: f64,
    /// See [`NOISE_PERCENT`].
    pub noise_percent: f64,
    /// Findings that are only in the new result.
    pub appeared: Vec<Change>,
    /// Findings that are only in the old result.
    pub gone: Vec<Change>,
    /// Findings in both results that cost more now.
    pub grew: Vec<Change>,
    /// Findings in both results that cost less now.
    pub shrank: Vec<Change>,
    /// Findings in both results without a change beyond noise, or in one of them below noise.
    pub unchanged: Vec<Change>,
    /// The reasons for which the two results may not be comparable, one sentence each.
    pub caveats: Vec<String>,
    /// Why the new run could not tell whether there is false sharing, if it could not: then nothing is
    /// known to be gone or less.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unknown: Option<String>,
}

/// One finding in both results, or in one of them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct Change {
    /// See [`crate::fingerprint()`]; that of the newer finding.
    pub fingerprint: String,
    /// The objects, in a few words.
    pub subject: String,
    /// Where the objects are declared, allocated or used.
    pub place: Option<Location>,
    /// The kind of sharing in the newer finding.
    pub sharing: Sharing,
    /// Whether the sharing only happens on other machines or layouts.
    pub latent: bool,
    /// The finding in the old result.
    pub old: Option<Measure>,
    /// The finding in the new result.
    pub new: Option<Measure>,
}

/// How much a finding costs in one result.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct Measure {
    /// The finding's rank in that result.
    pub rank: u32,
    /// The cost that is compared: for false and mixed sharing [`Finding::false_cost_percent`],
    /// for true sharing the whole cost.
    pub cost_percent: f64,
    /// Interleavings per second.
    pub interleavings_per_second: f64,
}

/// Compares two results.
///
/// Findings match by [`fingerprint`]; of several with the same one those that write the same fields
/// match first. What is left then matches by what a rename, a move to another
/// file or a build without debug information leaves: the name, or the type and the code, or the code
/// alone. Such a match must be the only one on both sides. False sharing that became true sharing is `gone`, and
/// the true sharing `appeared`: they need different remedies. Latent findings cost nothing yet,
/// so they can only appear or be gone.
pub fn compare(old: &Findings, new: &Findings) -> Comparison {
    let mut out = Comparison {
        schema: "sunder-comparison".to_owned(),
        version: 1,
        noise_factor: NOISE_FACTOR,
        noise_percent: NOISE_PERCENT,
        appeared: Vec::new(),
        gone: Vec::new(),
        grew: Vec::new(),
        shrank: Vec::new(),
        unchanged: Vec::new(),
        caveats: caveats(old, new),
        unknown: inconclusive(new),
    };
    for (before, after) in matched(&old.findings, &new.findings) {
        let Some(change) = Change::of(before, after) else {
            continue;
        };
        out.list_for(&change).push(change);
    }
    out
}

impl Comparison {
    /// Whether false sharing that is present (not latent) appeared or grew. A check on a pull
    /// request fails then.
    pub fn is_worse(&self) -> bool {
        self.appeared
            .iter()
            .chain(&self.grew)
            .any(|c| !c.latent && c.sharing != Sharing::True)
    }

    fn list_for(&mut self, change: &Change) -> &mut Vec<Change> {
        let moved = change.latent || change.moved();
        match (change.old, change.new) {
            (None, Some(_)) if moved => &mut self.appeared,
            (Some(_), None) if moved => &mut self.gone,
            (Some(old), Some(new)) if moved && !change.latent => {
                if new.cost_percent > old.cost_percent {
                    &mut self.grew
                } else {
                    &mut self.shrank
                }
            }
            _ => &mut self.unchanged,
        }
    }
}

impl Change {
    fn of(old: Option<&Finding>, new: Option<&Finding>) -> Option<Self> {
        let shown = new.or(old)?;
        Some(Self {
            fingerprint: fingerprint(shown),
            subject: shown.subject(),
            place: shown.place(),
            sharing: shown.sharing,
            latent: shown.latent,
            old: old.map(Measure::of),
            new: new.map(Measure::of),
        })
    }

    fn moved(&self) -> bool {
        let cost = |m: Option<Measure>| m.map_or(0.0, |m| m.cost_percent);
        let (old, new) = (cost(self.old), cost(self.new));
        let (low, high) = (old.min(new), old.max(new));
        high > low * NOISE_FACTOR && high - low > NOISE_PERCENT
    }
}

impl Measure {
    fn of(finding: &Finding) -> Self {
        let cost = match finding.sharing {
            Sharing::True => finding.cost_percent,
            _ => finding.false_cost_percent(),
        };
        Self {
            rank: finding.rank,
            cost_percent: if cost.is_finite() { cost } else { 0.0 },
            interleavings_per_second: finding.interleavings_per_second,
        }
    }
}

/// Findings of different classes never match.
fn class(finding: &Finding) -> (bool, bool) {
    (finding.latent, finding.sharing == Sharing::True)
}

type Pair<'a> = (Option<&'a Finding>, Option<&'a Finding>);

/// Every finding of both lists exactly once. The new ones come first, in their order.
fn matched<'a>(old: &'a [Finding], new: &'a [Finding]) -> Vec<Pair<'a>> {
    let mut partner: Vec<Option<usize>> = vec![None; new.len()];
    let mut taken = vec![false; old.len()];
    for key in [fingerprint_with_fields, fingerprint] {
        let keys: Vec<_> = old.iter().map(|f| (class(f), key(f))).collect();
        for (i, finding) in new.iter().enumerate() {
            if partner[i].is_some() {
                continue;
            }
            let wanted = (class(finding), key(finding));
            let found = (0..old.len()).find(|&j| !taken[j] && keys[j] == wanted);
            if let Some(j) = found {
                taken[j] = true;
                partner[i] = Some(j);
            }
        }
    }
    for (key, may_be_one) in likeness::KEYS {
        let keys = |findings: &[Finding]| -> Vec<_> {
            let of = |f: &Finding| Some((class(f), key(f)?));
            findings.iter().map(of).collect()
        };
        let (before, after) = (keys(old), keys(new));
        for (i, wanted) in after.iter().enumerate().filter(|(_, key)| key.is_some()) {
            let free = |j: &usize| {
                !taken[*j] && before[*j] == *wanted && may_be_one(&old[*j].object, &new[i].object)
            };
            let alike: Vec<usize> = (0..old.len()).filter(free).collect();
            let rivals = (0..new.len()).filter(|&i| partner[i].is_none() && after[i] == *wanted);
            if let ([j], None, 1) = (alike.as_slice(), partner[i], rivals.count()) {
                taken[*j] = true;
                partner[i] = Some(*j);
            }
        }
    }
    let of_new = new
        .iter()
        .zip(partner)
        .map(|(f, j)| (j.map(|j| &old[j]), Some(f)));
    let left = old
        .iter()
        .zip(taken)
        .filter(|(_, taken)| !taken)
        .map(|(f, _)| (Some(f), None));
    of_new.chain(left).collect()
}

/// Why the run of this result could not tell whether there was false sharing, as its verdict says.
fn inconclusive(result: &Findings) -> Option<String> {
    let verdict = result.verdict.as_ref();
    let verdict = verdict.filter(|verdict| verdict.answer == Answer::Inconclusive)?;
    let reasons: Vec<String> = verdict.reasons.iter().map(ToString::to_string).collect();
    Some(reasons.join("; "))
}

fn caveats(old: &Findings, new: &Findings) -> Vec<String> {
    let mut out = Vec::new();
    if let Some(why) = inconclusive(old) {
        out.push(format!(
            "The old run could not tell whether there was false sharing: {why}. What appeared may have \
             been there."
        ));
    }
    let mut differ = |what: &str, a: String, b: String| {
        if a != b {
            out.push(format!("{what} differ: {a} before, {b} now."));
        }
    };
    differ(
        "The programs",
        program_name(old).to_owned(),
        program_name(new).to_owned(),
    );
    differ(
        "The machines",
        old.machine.cpu.clone(),
        new.machine.cpu.clone(),
    );
    differ(
        "The numbers of CPUs",
        old.machine.cpus.to_string(),
        new.machine.cpus.to_string(),
    );
    differ(
        "The line sizes",
        old.machine.line_size.to_string(),
        new.machine.line_size.to_string(),
    );
    differ(
        "The numbers of threads",
        old.run.threads.to_string(),
        new.run.threads.to_string(),
    );
    differ(
        "The observers",
        old.run.observer.clone(),
        new.run.observer.clone(),
    );
    out
}

fn program_name(findings: &Findings) -> &str {
    let first = findings.program.command.first();
    crate::file_name(first.map(String::as_str).unwrap_or("(unknown)"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::examples;

    fn result(findings: Vec<Finding>) -> Findings {
        Findings {
            findings,
            ..Findings::default()
        }
    }

    fn with_cost(cost: f64) -> Finding {
        Finding {
            cost_percent: cost,
            ..examples::linear_regression()
        }
    }

    #[test]
    fn a_run_that_could_not_tell_says_nothing_of_what_is_gone() {
        let verdict = |answer| {
            Some(crate::Verdict {
                answer,
                reasons: vec![crate::Reason::FewSamples { samples: 7 }],
            })
        };
        let with = |answer, findings| Findings {
            verdict: verdict(answer),
            ..result(findings)
        };
        let found = with(Answer::Found, vec![with_cost(20.0)]);
        let blind = with(Answer::Inconclusive, Vec::new());
        let why = "there were only 7 samples";
        assert_eq!(compare(&found, &blind).unknown.as_deref(), Some(why));
        let back = compare(&blind, &found);
        assert_eq!((back.unknown, back.appeared.len()), (None, 1));
        assert!(back.caveats[0].contains(why), "{:?}", back.caveats);
        let clean = with(Answer::None, Vec::new());
        assert_eq!(compare(&found, &clean).unknown, None);
    }

    /// The numbers of findings that appeared, are gone, grew, shrank and are unchanged.
    fn counts(old: Vec<Finding>, new: Vec<Finding>) -> [usize; 5] {
        let c = compare(&result(old), &result(new));
        [&c.appeared, &c.gone, &c.grew, &c.shrank, &c.unchanged].map(Vec::len)
    }

    #[test]
    fn findings_that_appear_and_disappear_are_listed() {
        let one = examples::linear_regression();
        let two = examples::global_array();
        assert_eq!(counts(vec![], vec![one.clone()]), [1, 0, 0, 0, 0]);
        assert_eq!(counts(vec![one.clone()], vec![]), [0, 1, 0, 0, 0]);
        assert_eq!(counts(vec![one.clone()], vec![two]), [1, 1, 0, 0, 0]);
        assert_eq!(counts(vec![one.clone()], vec![one]), [0, 0, 0, 0, 1]);
    }

    #[test]
    fn the_noise_band_needs_both_the_factor_and_the_points() {
        for (old, new, wanted) in [
            (40.0, 61.0, [0, 0, 1, 0, 0]), // beyond 1.5 and 2 points
            (40.0, 60.0, [0, 0, 0, 0, 1]), // exactly 1.5
            (40.0, 55.0, [0, 0, 0, 0, 1]), // 15 points, but a factor of 1.4
            (1.0, 3.0, [0, 0, 0, 0, 1]),   // three times, but exactly 2 points
            (1.0, 3.1, [0, 0, 1, 0, 0]),
            (61.0, 40.0, [0, 0, 0, 1, 0]),
            (0.0, 0.0, [0, 0, 0, 0, 1]),
        ] {
            let found = counts(vec![with_cost(old)], vec![with_cost(new)]);
            assert_eq!(found, wanted, "{old} -> {new}");
        }
        // A finding that appears or goes away below the points is noise, too.
        assert_eq!(counts(vec![], vec![with_cost(1.9)]), [0, 0, 0, 0, 1]);
        assert_eq!(counts(vec![with_cost(1.9)], vec![]), [0, 0, 0, 0, 1]);
    }

    #[test]
    fn a_field_that_one_run_missed_does_not_make_another_finding() {
        let one = examples::linear_regression();
        let mut two = one.clone();
        two.lines[0].words.remove(0);
        two.lines.truncate(1);
        assert_ne!(fingerprint_with_fields(&one), fingerprint_with_fields(&two));
        assert_eq!(counts(vec![one], vec![two]), [0, 0, 0, 0, 1]);
    }

    #[test]
    fn of_two_findings_about_one_object_those_with_the_same_fields_match() {
        let one = with_cost(50.0);
        let mut other = with_cost(20.0);
        for word in other.lines.iter_mut().flat_map(|line| &mut line.words) {
            word.field = word
                .field
                .as_ref()
                .map(|field| format!("{field}_of_others"));
        }
        assert_eq!(fingerprint(&one), fingerprint(&other));
        let (before, after) = (vec![one.clone(), other.clone()], vec![other, one]);
        assert_eq!(counts(before, after), [0, 0, 0, 0, 2]);
    }

    #[test]
    fn false_sharing_that_became_true_is_gone_and_appeared() {
        let old = with_cost(50.0);
        let new = Finding {
            sharing: Sharing::True,
            ..with_cost(50.0)
        };
        let change = compare(&result(vec![old]), &result(vec![new]));
        assert_eq!((change.gone.len(), change.appeared.len()), (1, 1));
        assert!(!change.is_worse(), "true sharing fails no check");
    }

    #[test]
    fn new_latent_findings_appear_without_failing_a_check() {
        let latent = examples::latent();
        let change = compare(&result(vec![]), &result(vec![latent]));
        assert_eq!(change.appeared.len(), 1);
        assert!(!change.is_worse());
        assert!(compare(&result(vec![]), &result(vec![with_cost(9.0)])).is_worse());
    }

    #[test]
    fn two_alike_objects_match_one_to_one() {
        let two = vec![with_cost(50.0), with_cost(40.0)];
        assert_eq!(counts(two.clone(), two.clone()), [0, 0, 0, 0, 2]);
        assert_eq!(counts(two, vec![with_cost(50.0)]), [0, 1, 0, 0, 1]);
    }

    /// As a build without debug information shows it: symbols and nothing else.
    fn without_debug_information(mut finding: Finding) -> Finding {
        finding.object.type_name = None;
        finding.object.declared = None;
        for frame in &mut finding.object.allocation {
            (frame.file, frame.line) = (None, None);
        }
        for site in &mut finding.sites {
            (site.file, site.line) = (None, None);
            site.fields.clear();
            // A symbol has no parameters where its mangling has none.
            let end = site.function.find('(').unwrap_or(site.function.len());
            site.function.truncate(end);
            site.function.push_str("+0x1f");
        }
        for word in finding.lines.iter_mut().flat_map(|line| &mut line.words) {
            word.field = None;
        }
        finding
    }

    #[test]
    fn a_build_without_debug_information_has_the_same_findings() {
        for mut known in [
            examples::global_array(),
            examples::linear_regression(),
            examples::mixed(),
        ] {
            known.cost_percent = 50.0;
            let bare = without_debug_information(known.clone());
            assert_ne!(fingerprint(&known), fingerprint(&bare));
            let one = [0, 0, 0, 0, 1];
            assert_eq!(counts(vec![known.clone()], vec![bare.clone()]), one);
            assert_eq!(counts(vec![bare], vec![known]), one);
        }
    }

    #[test]
    fn a_renamed_or_moved_object_is_the_same() {
        let old = examples::global_array();
        let mut renamed = old.clone();
        renamed.object.name = Some("counts".to_owned());
        assert_eq!(
            counts(vec![old.clone()], vec![renamed.clone()]),
            [0, 0, 0, 0, 1]
        );
        let mut moved = old.clone();
        if let Some(declared) = &mut moved.object.declared {
            declared.file = "elsewhere.cpp".to_owned();
            declared.line = Some(999);
        }
        assert_eq!(counts(vec![old.clone()], vec![moved]), [0, 0, 0, 0, 1]);
        // Another object, of another type, in the same code.
        let mut another = renamed.clone();
        another.object.type_name = Some("double[8]".to_owned());
        assert_eq!(
            counts(vec![old.clone()], vec![another.clone()]),
            [1, 1, 0, 0, 0]
        );
        // And one of which only the name is known.
        another.object.type_name = None;
        assert_eq!(counts(vec![old.clone()], vec![another]), [1, 1, 0, 0, 0]);
        // Two that might be the renamed one.
        let mut other = renamed.clone();
        other.object.name = Some("totals".to_owned());
        assert_eq!(counts(vec![old], vec![renamed, other]), [2, 1, 0, 0, 0]);
    }

    #[test]
    fn runs_that_are_not_alike_are_called_so() {
        let old = examples::report();
        let mut new = old.clone();
        assert!(compare(&old, &new).caveats.is_empty());
        new.run.threads += 4;
        let caveats = compare(&old, &new).caveats;
        assert_eq!(caveats.len(), 1);
        assert!(caveats[0].contains("threads differ"), "{caveats:?}");
    }

    #[test]
    fn a_comparison_survives_json() {
        let c = compare(&examples::report(), &result(vec![with_cost(9.0)]));
        let text = serde_json::to_string(&c).expect("serializable");
        let again: Comparison = serde_json::from_str(&text).expect("readable");
        assert_eq!(again, c);
    }
}
