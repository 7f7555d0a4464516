//! Findings as SARIF 2.1.0 (OASIS standard), for code-scanning viewers. It uses nothing but the
//! findings; the caller may name the folder of the sources.

mod message;
mod places;

pub(crate) use self::message::{message, plain};
use self::places::{SOURCE_ROOT, normalized, stacks};
pub(crate) use self::places::{SourceUris, file_uri, locations};
use crate::describe;
use serde_json::{Value, json};
use std::path::Path;
use sunder_findings::{
    Answer, Exit, Finding, Findings, Sharing, Standing, escaped_json, fingerprint,
};

/// From this cost in percent on, false sharing is an `error`: it is more than what a new
/// compiler or machine changes.
const ERROR_PERCENT: f64 = 10.0;

/// Rules by index.
const RULES: [Rule; 3] = [
    Rule {
        id: "false-sharing",
        name: "FalseSharing",
        level: "warning",
        short: "Threads write to different data on one cache line.",
        full: "Different threads use disjoint bytes of one cache line and at least one of them \
               writes, so the line travels between cores although nothing is shared. Put the data \
               of different threads on different lines.",
        topic: "false-sharing",
    },
    Rule {
        id: "true-sharing",
        name: "TrueSharing",
        level: "note",
        short: "Threads write to the same data.",
        full: "Several threads use the same bytes and at least one of them writes. Padding does \
               not help: share less, for instance with a copy per thread.",
        topic: "true-sharing",
    },
    Rule {
        id: "latent-false-sharing",
        name: "LatentFalseSharing",
        level: "note",
        short: "Threads would share a cache line falsely on another machine or layout.",
        full: "In this run the data of different threads lay on different lines, or the threads \
               took turns. With other line sizes, if the object started elsewhere, or with more \
               processors, they would share lines at the same time.",
        topic: "latent",
    },
];

pub(crate) struct Rule {
    /// Its name in every format.
    pub(crate) id: &'static str,
    name: &'static str,
    level: &'static str,
    short: &'static str,
    full: &'static str,
    /// Its page in the terminal.
    topic: &'static str,
}

impl Rule {
    /// The rule that a finding breaks.
    pub(crate) fn of(finding: &Finding) -> &'static Self {
        &RULES[Self::index_of(finding)]
    }

    fn index_of(finding: &Finding) -> usize {
        match (finding.latent, finding.sharing) {
            (true, _) => 2,
            (false, Sharing::True) => 1,
            (false, Sharing::False | Sharing::Mixed) => 0,
        }
    }

    fn json(&self) -> Value {
        json!({
            "id": self.id,
            "name": self.name,
            "shortDescription": {"text": self.short},
            "fullDescription": {"text": self.full},
            "help": {"text": format!("`sunder explain {}` says more.", self.topic)},
            "defaultConfiguration": {"level": self.level},
        })
    }
}

/// The result as SARIF 2.1.0, indented and with a newline at the end. It has all findings;
/// those below the threshold, true sharing and latent ones are notes. A file with an absolute
/// path has an absolute URI.
pub fn sarif(findings: &Findings) -> String {
    log(findings, &SourceUris { root: None })
}

/// As [`sarif`], but files below `source_root` (an absolute path, usually the current folder)
/// have relative URIs with the base `SRCROOT`, as code-scanning services require.
pub fn sarif_with_root(findings: &Findings, source_root: &Path) -> String {
    let root = source_root.is_absolute().then(|| normalized(source_root));
    log(findings, &SourceUris { root })
}

fn log(findings: &Findings, uris: &SourceUris) -> String {
    let threshold = findings.run.threshold_percent;
    let results: Vec<Value> = findings
        .findings
        .iter()
        .map(|f| result(findings, f, threshold, uris))
        .collect();
    let mut run = json!({
        "tool": {"driver": {
            "name": "sunder",
            "version": findings.tool,
            "rules": RULES.iter().map(Rule::json).collect::<Vec<_>>(),
        }},
        "invocations": [invocation(findings)],
        "columnKind": "unicodeCodePoints",
        "results": results,
    });
    if let (Some(root), Some(run)) = (&uris.root, run.as_object_mut()) {
        let mut uri = file_uri(root);
        if !uri.ends_with('/') {
            uri.push('/');
        }
        run.insert(
            "originalUriBaseIds".to_owned(),
            json!({SOURCE_ROOT: {"uri": uri}}),
        );
    }
    let log = json!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [run],
    });
    // `Display` of a JSON value can't fail; `#` indents it.
    escaped_json(format!("{log:#}\n"))
}

/// The observation as a SARIF invocation. It succeeded, whatever the program did.
fn invocation(all: &Findings) -> Value {
    let threshold = all.run.threshold_percent;
    // No results would be taken for no false sharing.
    let unknown = (all.answer(threshold).answer == Answer::Inconclusive)
        .then(|| ("warning", describe::answer(all, threshold)));
    let limits = all.limits.iter().map(|l| ("note", l.to_string()));
    let notifications = unknown.into_iter().chain(limits);
    let mut out = json!({
        "executionSuccessful": true,
        "commandLine": describe::command(all),
        "toolExecutionNotifications": notifications
            .map(|(level, text)| json!({"level": level, "message": plain(&text)}))
            .collect::<Vec<_>>(),
    });
    let ended = match all.program.exit {
        Some(Exit::Status(status)) => Some(("exitCode", json!(status))),
        Some(Exit::Signal(signal)) => Some(("exitSignalNumber", json!(signal))),
        None => None,
    };
    if let (Some((key, value)), Some(out)) = (ended, out.as_object_mut()) {
        out.insert(key.to_owned(), value);
    }
    out
}

fn result(all: &Findings, finding: &Finding, threshold: f64, uris: &SourceUris) -> Value {
    let rule = Rule::index_of(finding);
    let (main, related) = locations(finding, uris);
    let names: Vec<&str> = related.iter().map(|place| place.name.as_str()).collect();
    let mut said = plain(&message(all, finding));
    said["markdown"] = json!(message::markdown(all, finding, &names));
    let places = related.iter().enumerate().map(|(id, place)| place.json(id));
    let mut out = json!({
        "ruleId": RULES[rule].id,
        "ruleIndex": rule,
        "kind": "fail",
        "level": level(finding, threshold),
        "message": said,
        "locations": main.into_iter().collect::<Vec<_>>(),
        "relatedLocations": places.collect::<Vec<_>>(),
        "stacks": stacks(finding, uris),
        "partialFingerprints": {"sunder/v1": fingerprint(finding)},
        "properties": {
            "sharing": describe::kind(finding),
            "costPercent": tenths(finding.cost_percent),
            "falseSharePercent": tenths(finding.false_share * 100.0),
            "interleavingsPerSecond": finite(finding.interleavings_per_second).round(),
            "confirmed": finding.confirmed,
            "threads": finding.threads().len(),
        },
    });
    let properties = &mut out["properties"];
    if let Some(gain) = finding.gain_percent {
        properties["gainPercent"] = json!(tenths(gain.likely));
    }
    if let Some(writes) = finding.interleaved_writes {
        properties["interleavedWrites"] = json!(writes);
    }
    if finding.processes.len() > 1 {
        let ids: Vec<u32> = finding.processes.iter().map(|p| p.id).collect();
        properties["processes"] = json!(ids);
    }
    // A rank orders findings by importance; a latent finding has none.
    if !finding.latent {
        let worth = finding
            .gain_percent
            .map_or(finding.cost_percent, |gain| gain.likely);
        out["rank"] = json!(tenths(worth).clamp(0.0, 100.0));
    }
    out
}

fn finite(number: f64) -> f64 {
    if number.is_finite() { number } else { 0.0 }
}

/// Rounded to one digit behind the point.
fn tenths(number: f64) -> f64 {
    (finite(number) * 10.0).round() / 10.0
}

/// How much a finding matters: by what a fix gains, if that was measured, else by its cost.
pub(crate) fn level(finding: &Finding, threshold: f64) -> &'static str {
    let worth = finding.gain_percent.map(|gain| gain.likely);
    let worth = worth.unwrap_or_else(|| finding.false_cost_percent());
    match finding.standing(threshold) {
        Standing::Significant if worth >= ERROR_PERCENT => "error",
        Standing::Significant => "warning",
        Standing::BelowThreshold | Standing::TrueSharing | Standing::Latent => "note",
    }
}
