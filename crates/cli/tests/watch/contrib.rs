//! What operators copy: units, manifests, dashboards. Each is checked by its own tool where that is
//! installed, and its command line is one that we take.

use crate::support::installed::installed;
use crate::support::sunder;
use std::path::{Path, PathBuf};
use std::process::Command;

fn contrib(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../contrib/watch")
        .join(name)
}

fn read(name: &str) -> String {
    std::fs::read_to_string(contrib(name)).expect("it is there")
}

/// Checks that our command line takes these arguments.
fn is_taken(arguments: &[&str]) {
    let mut command = sunder();
    // It ends before anything is opened.
    let shown = command
        .args(arguments)
        .args(["--check"])
        .output()
        .expect("it starts");
    let told = String::from_utf8_lossy(&shown.stderr);
    assert_ne!(shown.status.code(), Some(2), "{told}");
}

#[test]
fn the_unit_of_systemd_is_valid() {
    let unit = read("sunder-watch.service");
    let line = unit
        .lines()
        .find_map(|l| l.strip_prefix("ExecStart=/usr/local/bin/sunder "));
    let arguments: Vec<&str> = line.expect("it starts sunder").split(' ').collect();
    is_taken(&arguments);
    let Some(analyze) = installed("systemd-analyze") else {
        return;
    };
    // The program need not be installed where the test runs.
    let folder = tempfile::tempdir().expect("a folder");
    let here = folder.path().join("sunder-watch.service");
    let unit = unit.replace("/usr/local/bin/sunder", "/bin/true");
    std::fs::write(&here, unit).expect("written");
    let checked = Command::new(analyze)
        .arg("verify")
        .arg(&here)
        .output()
        .expect("it starts");
    let told = String::from_utf8_lossy(&checked.stderr);
    let of_ours = told.lines().filter(|line| line.contains("sunder-watch"));
    assert_eq!(of_ours.collect::<Vec<_>>(), Vec::<&str>::new());
}

#[test]
fn the_manifest_starts_what_there_is() {
    let manifest = read("daemonset.yaml");
    let arguments = manifest
        .lines()
        .skip_while(|line| line.trim() != "args:")
        .skip(1);
    let arguments: Vec<&str> = arguments
        .map_while(|line| line.trim().strip_prefix("- "))
        .collect();
    assert_eq!(arguments.first(), Some(&"watch"));
    is_taken(&arguments);
}

/// The queries of the dashboard, with the variables of Grafana replaced by what it puts there.
pub fn queries() -> Vec<String> {
    let board: serde_json::Value = serde_json::from_str(&read("grafana.json")).expect("JSON");
    let mut queries = Vec::new();
    for panel in board["panels"].as_array().expect("panels") {
        for target in panel["targets"].as_array().expect("targets") {
            let query = target["expr"].as_str().expect("a query");
            let query = query
                .replace("$__rate_interval", "4m")
                .replace("$instance", ".*");
            assert!(!query.contains('$'), "{query}");
            queries.push(query);
        }
    }
    assert!(queries.len() >= 6, "{queries:?}");
    queries
}

#[test]
fn dashboard_and_rules_ask_for_figures_that_exist() {
    let board: serde_json::Value = serde_json::from_str(&read("grafana.json")).expect("JSON");
    let page = sunder_export::page(&sunder_export::Metrics::default());
    let text = [
        board.to_string(),
        read("alerts.yaml"),
        read("alerts.test.yaml"),
    ]
    .concat();
    let names = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    let mut seen = 0;
    for name in names.filter(|name| name.starts_with("sunder_")) {
        assert!(page.contains(&format!("# TYPE {name} ")), "{name}");
        seen += 1;
    }
    assert!(seen > 10, "{seen}");
}

#[test]
fn dashboard_and_rules_know_the_labels_that_figures_have() {
    // `instance` comes from Prometheus; the others are those of a finding and of an event.
    let known = [
        "instance",
        "program",
        "object",
        "container",
        "event",
        "severity",
    ];
    let text = [queries().join("\n"), read("alerts.yaml")].concat();
    let mut seen = 0;
    for by in text.split(" by (").skip(1) {
        let (labels, _) = by.split_once(')').expect("it is closed");
        for label in labels.split(',') {
            assert!(known.contains(&label.trim()), "{label}");
            seen += 1;
        }
    }
    let shown = [
        read("grafana.json"),
        read("alerts.yaml").replace("$labels.", ""),
    ]
    .concat();
    for placeholder in shown.split("{{").skip(1) {
        let (label, _) = placeholder.split_once("}}").expect("it is closed");
        let label = label.trim();
        assert!(label.starts_with('$') || known.contains(&label), "{label}");
        seen += 1;
    }
    assert!(seen > 10, "{seen}");
}

/// Whether the test file of the rules shows for each alert that it is raised, and that it is not.
#[test]
fn every_alert_has_a_test_of_both_kinds() {
    let rules = read("alerts.yaml");
    let alerts = rules
        .lines()
        .filter_map(|line| line.trim().strip_prefix("- alert: "));
    let alerts: Vec<&str> = alerts.collect();
    assert!(alerts.len() >= 5, "{alerts:?}");
    let tests = read("alerts.test.yaml");
    for alert in alerts {
        let of = tests
            .split("- alertname: ")
            .filter(|part| part.lines().next() == Some(alert));
        let (quiet, raised): (Vec<&str>, Vec<&str>) =
            of.partition(|part| part.contains("exp_alerts: []"));
        assert!(!quiet.is_empty() && !raised.is_empty(), "{alert}");
    }
}
