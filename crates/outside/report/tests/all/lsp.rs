//! Diagnostics for editors: each line must be what the Language Server Protocol's types read.

use lsp_types::{Diagnostic, DiagnosticSeverity, NumberOrString};
use serde_json::Value;
use std::path::Path;
use sunder_findings::{Finding, Findings, Sharing, examples, fingerprint};
use sunder_report::diagnostics;

const ROOT: &str = "/home/user/a b";

/// The lines, read by the protocol's types, with the address of each file.
fn lines(all: &Findings) -> Vec<(String, Diagnostic)> {
    let text = diagnostics(all, Path::new(ROOT));
    assert!(text.is_empty() || text.ends_with('\n'));
    let line = |line: &str| {
        let mut value: Value = serde_json::from_str(line).expect("JSON");
        let members = value.as_object_mut().expect("an object");
        let uri = members.remove("uri").expect("a file");
        let diagnostic = members.remove("diagnostic").expect("a diagnostic");
        assert!(members.is_empty(), "{members:?}");
        let uri = uri.as_str().expect("text").to_owned();
        assert!(uri.parse::<lsp_types::Uri>().is_ok(), "{uri}");
        let read = serde_json::from_value(diagnostic).expect("a diagnostic of the protocol");
        (uri, read)
    };
    text.lines().map(line).collect()
}

/// A finding whose first writing instruction is in line 7 of this file.
fn at(file: &str) -> Finding {
    let mut finding = examples::linear_regression();
    finding
        .sites
        .retain(|site| site.kind != sunder_findings::AccessKind::Read);
    finding.sites.truncate(1);
    finding.sites[0].file = Some(file.into());
    finding.sites[0].line = Some(7);
    finding
}

#[test]
fn a_line_names_the_file_the_line_and_the_advice() {
    let all = examples::result(vec![at("/src/a.c")]);
    let [(uri, diagnostic)] = &lines(&all)[..] else {
        panic!("one finding is one line");
    };
    assert_eq!(uri, "file:///src/a.c");
    // Lines count from 0, and the range is the whole line.
    let (start, end) = (diagnostic.range.start, diagnostic.range.end);
    assert_eq!((start.line, start.character), (6, 0));
    assert_eq!((end.line, end.character), (7, 0));
    assert_eq!(diagnostic.source.as_deref(), Some("sunder"));
    let code = NumberOrString::String("false-sharing".into());
    assert_eq!(diagnostic.code, Some(code));
    let data = diagnostic.data.as_ref().expect("what tools need");
    assert_eq!(data["fingerprint"], fingerprint(&all.findings[0]));
    for related in diagnostic.related_information.iter().flatten() {
        assert!(related.location.uri.as_str().starts_with("file:///"));
        assert!(!related.message.is_empty());
    }
}

#[test]
fn relative_paths_are_below_the_root() {
    let all = examples::result(vec![at("src/x.c")]);
    assert_eq!(lines(&all)[0].0, "file:///home/user/a%20b/src/x.c");
}

#[test]
fn how_much_a_finding_matters_is_its_severity() {
    let severity = |change: &dyn Fn(&mut Finding)| {
        let mut finding = at("/src/a.c");
        change(&mut finding);
        lines(&examples::result(vec![finding]))[0].1.severity
    };
    // The threshold of the examples lies between 0.1 and 5 %.
    let cost = |percent: f64| {
        move |f: &mut Finding| {
            f.cost_percent = percent;
            f.gain_percent = None;
            f.false_share = 1.0;
            f.sharing = Sharing::False;
        }
    };
    assert_eq!(severity(&cost(50.0)), Some(DiagnosticSeverity::ERROR));
    assert_eq!(severity(&cost(5.0)), Some(DiagnosticSeverity::WARNING));
    assert_eq!(severity(&cost(0.1)), Some(DiagnosticSeverity::INFORMATION));
    let latent = |f: &mut Finding| f.latent = true;
    assert_eq!(severity(&latent), Some(DiagnosticSeverity::HINT));
}

#[test]
fn findings_without_a_place_in_the_sources_have_no_line() {
    let mut finding = at("/src/a.c");
    finding.sites[0].file = None;
    finding.object.declared = None;
    finding.object.allocation.clear();
    finding.neighbour = None;
    assert_eq!(lines(&examples::result(vec![finding])), []);
    assert_eq!(lines(&examples::result(Vec::new())), []);
}
