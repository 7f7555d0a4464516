//! Changes that were tried, placements and predictions: in both reports, in the order of the
//! result, and with names that try to break the layout.

use sunder_findings::{
    AtStart, Findings, OnLines, Placement, Predicted, Simulated, Simulation, Tried, WhatIf,
    examples,
};
use sunder_report::{TextOptions, html, text};

fn change(arguments: &[&str], misses_saved: i64, bytes: u64) -> Tried {
    Tried {
        finding: Some(1),
        change: "give `pair.second` lines of its own".into(),
        arguments: arguments.iter().map(|a| (*a).to_owned()).collect(),
        misses_saved,
        bytes,
        ..Tried::default()
    }
}

fn on(line_size: u32, false_sharing: u64) -> OnLines {
    OnLines {
        line_size,
        false_sharing,
        ..OnLines::default()
    }
}

fn at(offset: u32, false_sharing: u64) -> AtStart {
    AtStart {
        offset,
        false_sharing,
        ..AtStart::default()
    }
}

/// A result with 2,000 misses of true and false sharing, and one change that helps, one that
/// does not, and one that harms.
fn result() -> Findings {
    let mut finding = examples::global_array();
    finding.predicted = Some(Predicted {
        // A few misses are caused by a program's start or end.
        line_sizes: vec![on(32, 3), on(64, 1500), on(128, 1600), on(256, 1600)],
        starts: vec![at(0, 1500), at(16, 0), at(32, 1500), at(48, 15)],
    });
    let mut all = examples::result(vec![finding]);
    all.simulation = Some(Simulation {
        granule: 64,
        nodes: 2,
        totals: Simulated {
            references: 10_000,
            true_sharing: 500,
            false_sharing: 1500,
            ..Simulated::default()
        },
        placement: Some(Placement {
            policy: "hoard".into(),
            changes: vec!["pad pair.second".into()],
            page: 4096,
            allocations: 7,
            buckets: 3,
            pages: 5,
            general_pages: 4,
            ..Placement::default()
        }),
        ..Simulation::default()
    });
    all.what_if = Some(WhatIf {
        changes: vec![
            change(&["--pad", "pair.second"], 1500, 1120),
            change(&["--align", "pair=64"], 0, 48),
            Tried {
                finding: None,
                ..change(&["--placement", "sized"], -20, 0)
            },
        ],
        replays: 15,
        seconds: 2.0,
    });
    all
}

fn told(all: &Findings, all_of_it: bool) -> String {
    let options = TextOptions {
        all: all_of_it,
        ..TextOptions::default()
    };
    text(all, &options)
}

#[test]
fn helpful_changes_are_shown_and_the_others_counted() {
    let told = told(&result(), false);
    for wanted in [
        "Of the 2,000 misses because another thread wrote; 3 changes tried in 15 replays",
        "1. saves 1,500 misses (75 %), +1,120 bytes",
        "#1: give `pair.second` lines of its own",
        "--pad pair.second",
        "2 changes that save nothing (--all)",
    ] {
        assert!(told.contains(wanted), "{wanted}: {told}");
    }
    assert!(!told.contains("--align pair=64"), "{told}");
}

#[test]
fn all_changes_are_shown_on_demand_and_in_html() {
    let told = told(&result(), true);
    let page = html(&result());
    for wanted in ["saves no misses", "adds 20 misses", "--placement sized"] {
        assert!(told.contains(wanted), "{wanted}: {told}");
        assert!(page.contains(wanted), "{wanted}");
    }
    assert!(told.contains("heap: give"), "{told}");
}

#[test]
fn predictions_count_from_a_hundredth_of_the_worst() {
    let told = told(&result(), false);
    let one_line = told.split_whitespace().collect::<Vec<_>>().join(" ");
    let wanted = "Falsely shared on lines of 64, 128 and 256 bytes, not on lines of 32; at 2 of 4 \
                  start offsets (0, 32).";
    assert!(one_line.contains(wanted), "{told}");
}

#[test]
fn placement_is_reported_with_its_pages() {
    let told = told(&result(), false);
    let one_line = told.split_whitespace().collect::<Vec<_>>().join(" ");
    let wanted = "Heap objects lie as hoard places them, pad pair.second: 7 blocks in 3 buckets, 5 pages \
                  of 4,096 bytes where one heap for all needs 4.";
    assert!(one_line.contains(wanted), "{told}");
}

#[test]
fn names_of_changes_stay_in_their_place() {
    let bad = "a\u{1b}[2J\u{7}\r\nb\u{202e}</script><b>`&\"'\u{9b}31m";
    let mut all = result();
    let what_if = all.what_if.as_mut().expect("tried");
    what_if.changes[0].change = bad.into();
    what_if.changes[0].arguments = vec!["--pad".into(), bad.into()];
    let simulation = all.simulation.as_mut().expect("simulated");
    simulation.placement.as_mut().expect("placed").changes = vec![bad.into()];
    let told = told(&all, true);
    assert!(!told.contains(['\u{1b}', '\u{7}', '\r', '\u{202e}', '\u{9b}']));
    let page = html(&all);
    assert!(!page.contains("</script><b>"));
}
