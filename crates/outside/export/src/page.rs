//! The figures in the text format of Prometheus (version 0.0.4). Pure.

use crate::figures::{Kind, figures};
use crate::metrics::Metrics;
use std::fmt::Write;
use sunder_findings::Shown;

/// All figures.
pub fn page(metrics: &Metrics) -> String {
    let mut page = String::new();
    for figure in figures(metrics) {
        let (kind, end) = match figure.kind {
            Kind::Sum => ("counter", "_total"),
            Kind::Gauge => ("gauge", ""),
        };
        let (name, help) = (figure.name, figure.help);
        // Writing to a string can't fail.
        let _ = writeln!(page, "# HELP {name}{end} {help}\n# TYPE {name}{end} {kind}");
        for (labels, value) in figure.points {
            let labels: Vec<String> = labels
                .iter()
                .map(|(label, text)| format!("{label}=\"{}\"", escaped(text)))
                .collect();
            let labels = match labels.as_slice() {
                [] => String::new(),
                some => format!("{{{}}}", some.join(",")),
            };
            let _ = writeln!(page, "{name}{end}{labels} {value}");
        }
    }
    page
}

/// A label's value. The format escapes three characters; others that command a terminal are replaced,
/// since a program chooses its names.
fn escaped(text: &str) -> String {
    let lines = text.split('\n').map(|line| {
        let line = Shown(line).to_string();
        line.replace('\\', "\\\\").replace('"', "\\\"")
    });
    lines.collect::<Vec<_>>().join("\\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::tests::status;

    #[test]
    fn names_of_programs_can_not_break_out_of_their_labels() {
        let mut metrics = Metrics::default();
        metrics.add(&status(&[(1, "a\"} 1\nevil{x=\"\\\u{1b}\u{202e}", 2.5)]));
        let page = page(&metrics);
        let line = "sunder_lost_cpu_seconds_total{program=\"server\",object=\"a\\\"} 1\\nevil{x=\\\"\\\\\
                    \u{fffd}\u{fffd}\",container=\"\"} 2.5\n";
        assert!(page.contains(line), "{page}");
        let is_ours = |line: &str| line.starts_with("# ") || line.starts_with("sunder_");
        assert!(page.lines().all(is_ours), "{page}");
    }

    #[test]
    fn programs_have_their_samples() {
        let mut metrics = Metrics::default();
        metrics.by_program.insert("server".into(), (157.0, 17.0));
        let page = page(&metrics);
        for line in [
            "\nsunder_program_samples_total{program=\"server\"} 157\n",
            "\nsunder_program_samples_unattributed_total{program=\"server\"} 17\n",
        ] {
            assert!(page.contains(line), "{page}");
        }
    }
}
