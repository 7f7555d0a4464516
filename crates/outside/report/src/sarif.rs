//! Findings as SARIF 2.1.0 (OASIS standard), for code-scanning viewers. It uses nothing but the
//! findings; the caller may name the folder of the sources.

use crate::clean::clean;
use crate::describe;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};
use sunder_findings::{
    AccessKind, Exit, Finding, Findings, Frame, Sharing, Site, Standing, fingerprint,
};

/// The name of the folder of the sources in `uriBaseId`, as viewers know it.
const SOURCE_ROOT: &str = "SRCROOT";
/// From this cost in percent on, false sharing is an `error`: it is more than what a new
/// compiler or machine changes.
const ERROR_PERCENT: f64 = 10.0;
/// The most other positions in a result.
const MOST_RELATED: usize = 12;

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
    },
    Rule {
        id: "true-sharing",
        name: "TrueSharing",
        level: "note",
        short: "Threads write to the same data.",
        full: "Several threads use the same bytes and at least one of them writes. Padding does \
               not help: share less, for instance with a copy per thread.",
    },
    Rule {
        id: "latent-false-sharing",
        name: "LatentFalseSharing",
        level: "note",
        short: "Threads would share a cache line falsely on another machine or layout.",
        full: "In this run the data of different threads lay on different lines, or the threads \
               took turns. With other line sizes, if the object started elsewhere, or with more \
               processors, they would share lines at the same time.",
    },
];

pub(crate) struct Rule {
    /// Its name in every format.
    pub(crate) id: &'static str,
    name: &'static str,
    level: &'static str,
    short: &'static str,
    full: &'static str,
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
            "help": {"text": self.full},
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
    format!("{log:#}\n")
}

/// The observation as a SARIF invocation. It succeeded, whatever the program did.
fn invocation(all: &Findings) -> Value {
    let mut out = json!({
        "executionSuccessful": true,
        "commandLine": describe::command(all),
        "toolExecutionNotifications": all
            .limits
            .iter()
            .map(|l| json!({"level": "note", "message": plain(&l.to_string())}))
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
    let mut out = json!({
        "ruleId": RULES[rule].id,
        "ruleIndex": rule,
        "level": level(finding, threshold),
        "message": plain(&message(all, finding)),
        "locations": main.into_iter().collect::<Vec<_>>(),
        "relatedLocations": related,
        "partialFingerprints": {"sunder/v1": fingerprint(finding)},
        "properties": {
            "sharing": finding.sharing,
            "costPercent": finite(finding.cost_percent),
            "falseSharePercent": finite(finding.false_share * 100.0),
            "interleavingsPerSecond": finite(finding.interleavings_per_second),
            "confirmed": finding.confirmed,
            "threads": finding.threads().len(),
        },
    });
    if let Some(writes) = finding.interleaved_writes {
        out["properties"]["interleavedWrites"] = json!(writes);
    }
    if !finding.processes.is_empty() {
        let ids: Vec<u32> = finding.processes.iter().map(|p| p.id).collect();
        out["properties"]["processes"] = json!(ids);
    }
    // A rank orders findings by importance; a latent finding has none.
    if let (false, Some(out)) = (finding.latent, out.as_object_mut()) {
        let rank = finite(finding.cost_percent).clamp(0.0, 100.0);
        out.insert("rank".to_owned(), json!(rank));
    }
    out
}

fn finite(number: f64) -> f64 {
    if number.is_finite() { number } else { 0.0 }
}

/// How much a finding matters.
pub(crate) fn level(finding: &Finding, threshold: f64) -> &'static str {
    match finding.standing(threshold) {
        Standing::Significant if finding.false_cost_percent() >= ERROR_PERCENT => "error",
        Standing::Significant => "warning",
        Standing::BelowThreshold | Standing::TrueSharing | Standing::Latent => "note",
    }
}

/// A SARIF message that is shown as this text, cleaned. All messages with names from a program are
/// made here: `[text](target)` in one would be a link (section 3.11.6).
pub(crate) fn plain(text: &str) -> Value {
    json!({"text": clean(text).replace("](", "] (")})
}

/// The kind, the cost and the advice.
pub(crate) fn message(all: &Findings, finding: &Finding) -> String {
    let of = match finding.gain_percent {
        _ if finding.latent => "",
        Some(_) => " of the program's time",
        None => " of the time of its threads",
    };
    let price = format!("{}{of}.", describe::cost(finding));
    let mut text = format!(
        "{}: {} {price} {}.",
        describe::kind(finding),
        clean(&finding.subject()),
        describe::evidence(all, finding),
    );
    if let Some(advice) = finding.advice.first() {
        text.push(' ');
        text.push_str(&clean(&advice.text));
    }
    if let Some(first) = text.get(..1).map(str::to_uppercase) {
        text.replace_range(..1, &first);
    }
    text
}

/// The position to mark, and the others: allocation, declaration and more code.
pub(crate) fn locations(finding: &Finding, uris: &SourceUris) -> (Option<Value>, Vec<Value>) {
    let writes_first = |s: &&Site| s.kind == AccessKind::Read;
    let mut sites: Vec<&Site> = finding.sites.iter().filter(|s| s.file.is_some()).collect();
    sites.sort_by_key(writes_first);
    let mut related = Vec::new();
    let objects = std::iter::once(&finding.object).chain(&finding.neighbour);
    for object in objects {
        if let Some(declared) = &object.declared {
            let physical = uris.physical(&declared.file, declared.line);
            related.push((
                physical,
                format!("{} is declared here", object.short_name()),
                None,
            ));
        }
        if let Some(frame) = object.allocation_site() {
            related.extend(allocation(frame, object.short_name(), uris));
        }
    }
    let mut rest = sites.iter();
    let main = match rest.next() {
        Some(site) => Some(json!({
            "physicalLocation": uris.physical(site.file.as_deref().unwrap_or_default(), site.line),
            "logicalLocations": [logical(&site.function)],
        })),
        None => related
            .first()
            .map(|(physical, ..)| json!({"physicalLocation": physical}))
            .or_else(|| {
                let site = finding.sites.first()?;
                Some(json!({"logicalLocations": [logical(&site.function)]}))
            }),
    };
    for site in rest {
        let physical = uris.physical(site.file.as_deref().unwrap_or_default(), site.line);
        let text = match site.kind {
            _ if site.calls.is_some() => "a lock on it is taken or given back here",
            AccessKind::Read => "also read here",
            AccessKind::Write => "also written here",
            AccessKind::Update => "also updated here",
            AccessKind::Atomic => "also updated atomically here",
        };
        related.push((physical, text.to_owned(), Some(site.function.as_str())));
    }
    let mut seen = BTreeSet::new();
    let related = related
        .into_iter()
        .filter(|(physical, text, _)| seen.insert((physical.to_string(), text.clone())))
        .take(MOST_RELATED)
        .enumerate()
        .map(|(id, (physical, text, function))| {
            let mut place = Map::new();
            place.insert("id".to_owned(), json!(id));
            place.insert("physicalLocation".to_owned(), physical);
            place.insert("message".to_owned(), plain(&text));
            if let Some(function) = function {
                place.insert("logicalLocations".to_owned(), json!([logical(function)]));
            }
            Value::Object(place)
        })
        .collect();
    (main, related)
}

fn allocation<'a>(
    frame: &'a Frame,
    name: &str,
    uris: &SourceUris,
) -> Option<(Value, String, Option<&'a str>)> {
    let physical = uris.physical(frame.file.as_deref()?, frame.line);
    Some((
        physical,
        format!("{name} is allocated here"),
        Some(frame.function.as_str()),
    ))
}

fn logical(function: &str) -> Value {
    json!({"fullyQualifiedName": clean(function), "kind": "function"})
}

/// The folder against which paths become relative URIs.
pub(crate) struct SourceUris {
    /// The folder; `None` if none is known.
    pub(crate) root: Option<PathBuf>,
}

impl SourceUris {
    fn physical(&self, file: &str, line: Option<u32>) -> Value {
        let mut place = Map::new();
        place.insert("artifactLocation".to_owned(), self.artifact(file));
        if let Some(line) = line.filter(|&l| l > 0) {
            place.insert("region".to_owned(), json!({"startLine": line}));
        }
        Value::Object(place)
    }

    fn artifact(&self, file: &str) -> Value {
        let path = normalized(Path::new(file));
        let below = match &self.root {
            // A relative path in debug information is relative to the compiler's working folder,
            // which is most often the root of the sources.
            Some(_) if path.is_relative() => Some(path.as_path()),
            Some(root) => path.strip_prefix(root).ok(),
            None => None,
        };
        match below {
            Some(inside) if !inside.starts_with("..") => {
                json!({"uri": encoded(inside), "uriBaseId": SOURCE_ROOT})
            }
            _ if path.is_absolute() => json!({"uri": file_uri(&path)}),
            _ => json!({"uri": encoded(&path)}),
        }
    }
}

/// The path without `.` and, as far as its text allows, without `..`.
fn normalized(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => match out.components().next_back() {
                Some(Component::Normal(_)) => {
                    out.pop();
                }
                Some(Component::RootDir) => {}
                _ => out.push(".."),
            },
            other => out.push(other),
        }
    }
    out
}

/// The address of a file with an absolute path.
pub(crate) fn file_uri(path: &Path) -> String {
    format!("file://{}", encoded(path))
}

/// RFC 3986: all characters but unreserved ones and `/` in percent notation.
fn encoded(path: &Path) -> String {
    let mut out = String::new();
    for byte in path.to_string_lossy().bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_below_the_root_are_relative_to_it() {
        let uris = SourceUris {
            root: Some(PathBuf::from("/home/user/app")),
        };
        for (file, wanted) in [
            (
                "/home/user/app/src/a.c",
                json!({"uri": "src/a.c", "uriBaseId": "SRCROOT"}),
            ),
            (
                "/home/user/app/build/../src/a b.c",
                json!({"uri": "src/a%20b.c", "uriBaseId": "SRCROOT"}),
            ),
            (
                "src/./ü.c",
                json!({"uri": "src/%C3%BC.c", "uriBaseId": "SRCROOT"}),
            ),
            (
                "/home/user/app2/a.c",
                json!({"uri": "file:///home/user/app2/a.c"}),
            ),
            (
                "/home/user/app/../x.c",
                json!({"uri": "file:///home/user/x.c"}),
            ),
            ("../x.c", json!({"uri": "../x.c"})),
            ("C:evil", json!({"uri": "C%3Aevil", "uriBaseId": "SRCROOT"})),
        ] {
            assert_eq!(uris.artifact(file), wanted, "{file}");
        }
        let without_root = SourceUris { root: None };
        assert_eq!(without_root.artifact("/a.c"), json!({"uri": "file:///a.c"}));
        assert_eq!(without_root.artifact("a.c"), json!({"uri": "a.c"}));
    }
}
