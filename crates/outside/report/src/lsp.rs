//! Findings as lines of JSON, each with one diagnostic in the shape of the Language Server Protocol
//! (3.17, `Diagnostic`) and the address of its file: for editors, whose plug-ins have that type
//! already. Places and messages are those of the SARIF report.

use crate::sarif::{Rule, SourceUris, file_uri, level, locations, message, plain};
use serde_json::{Value, json};
use std::path::Path;
use sunder_findings::{Finding, Findings, fingerprint};

/// The name under which editors show who found it.
const SOURCE: &str = "sunder";

/// One line for each finding that has a place in the sources: `{"uri": …, "diagnostic": …}`. Findings
/// of code without debug information have none, and are left out. Relative paths of the sources are
/// those below `source_root`, an absolute path.
pub fn diagnostics(findings: &Findings, source_root: &Path) -> String {
    let root = file_uri(source_root);
    let lines = findings.findings.iter().filter_map(|finding| {
        let (uri, diagnostic) = diagnostic(findings, finding, &root)?;
        Some(format!(
            "{}\n",
            json!({"uri": uri, "diagnostic": diagnostic})
        ))
    });
    lines.collect()
}

fn diagnostic(all: &Findings, finding: &Finding, root: &str) -> Option<(String, Value)> {
    let rule = Rule::of(finding);
    let (main, related) = locations(finding, &SourceUris { root: None });
    let (uri, range) = place(main?.get("physicalLocation")?, root)?;
    let related = related.iter().filter_map(|other| {
        let (uri, range) = place(&other.physical, root)?;
        Some(json!({
            "location": {"uri": uri, "range": range},
            "message": plain(&other.text).get("text")?,
        }))
    });
    // The protocol's numbers: error, warning, information, hint.
    let severity = match level(finding, all.run.threshold_percent) {
        "error" => 1,
        "warning" => 2,
        _ if finding.latent => 4,
        _ => 3,
    };
    let diagnostic = json!({
        "range": range,
        "severity": severity,
        "code": rule.id,
        "source": SOURCE,
        "message": plain(&message(all, finding)).get("text")?,
        "relatedInformation": related.collect::<Vec<_>>(),
        "data": {
            "fingerprint": fingerprint(finding),
            "costPercent": finding.cost_percent,
            "gainPercent": finding.gain_percent.map(|gain| gain.likely),
            "confirmed": finding.confirmed,
        },
    });
    Some((uri, diagnostic))
}

/// The absolute address of a file, and the range of a whole line in it, which counts from 0; the
/// first line if none is known.
fn place(physical: &Value, root: &str) -> Option<(String, Value)> {
    let uri = physical.pointer("/artifactLocation/uri")?.as_str()?;
    let uri = match uri.starts_with("file:///") {
        true => uri.to_owned(),
        false => format!("{}/{uri}", root.trim_end_matches('/')),
    };
    let line = physical.pointer("/region/startLine");
    let line = line.and_then(Value::as_u64).unwrap_or(1) - 1;
    let at = |line: u64| json!({"line": line, "character": 0});
    Some((uri, json!({"start": at(line), "end": at(line + 1)})))
}
