//! The documentation's example is what the code writes, and can be read again.

use std::path::PathBuf;
use sunder_findings::{Findings, examples};

fn example() -> Findings {
    let mut all = examples::report();
    for finding in &mut all.findings {
        finding.advice = sunder_plan::advise(finding, all.machine.line_size);
    }
    all
}

/// `SUNDER_PUBLISH=1 cargo test -p sunder-report` writes it again.
#[test]
fn the_documented_example_is_current() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../docs/schema/example.json");
    let wanted = sunder_report::json(&example()).expect("all figures are numbers");
    if std::env::var_os("SUNDER_PUBLISH").is_some() {
        std::fs::write(&path, &wanted).expect("docs/schema is writable");
    }
    let found = std::fs::read_to_string(&path).expect("docs/schema is there");
    assert!(
        found == wanted,
        "{} is out of date: run SUNDER_PUBLISH=1 cargo test -p sunder-report",
        path.display()
    );
    assert_eq!(Findings::open(&path).expect("it is a result"), example());
}
